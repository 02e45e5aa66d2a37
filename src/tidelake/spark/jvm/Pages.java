package tidelake;

import com.github.luben.zstd.Zstd;
import com.github.luben.zstd.ZstdDecompressCtx;
import org.apache.spark.unsafe.Platform;

/** Texts in a row: where each ends, after where the first begins, and their bytes, behind which eight more may be read. */
class Letters {
  int count = 0;
  int[] ends = new int[1];
  byte[] data = new byte[Pages.SLACK];

  /** Has room for so many texts of so many bytes. */
  void room(int texts, int bytes) {
    count = texts;
    ends = Pages.room(ends, texts + 1);
    ends[0] = 0;
    if (data.length - Pages.SLACK < bytes) {
      data = new byte[bytes + Pages.SLACK];
    }
  }

  /** Becomes one text. */
  void put(byte[] page, int at, int length) {
    room(1, length);
    System.arraycopy(page, at, data, 0, length);
    ends[1] = length;
  }
}

/** Decodes what pages consist of. What does not fit is an error; nothing is read beyond a page's end. */
public class Pages {
  public static final int SLACK = 8;  // bytes that may be read, and written, behind texts
  static final int CONSTANT = 0;
  static final int PLAIN = 1;
  static final int ZSTD = 2;
  static final int DELTA = 3;
  static final int PCO = 4;
  static final int REAL_PCO = 5;
  static final int PLANES = 6;
  static final int DECIMAL = 7;
  public static final int DIFFERENCE = 8;
  public static final int TEXT_CONSTANT = 16;
  static final int TEXT_PLAIN = 17;
  static final int TEXT_ZSTD = 18;
  public static final int TEXT_DICTIONARY = 19;
  public static final int TEXT_TEMPLATES = 20;
  public static final int NO_NULLS = 32;
  static final int ALL_NULLS = 33;
  static final int SOME_NULLS = 34;
  static final int MAX_PLACES = 9;
  static final int MAX_GAIN_LOG = 15;  // zstd makes 128 KiB of four bytes at most
  public static final int MAX_BYTES = Integer.MAX_VALUE - 64;  // of an array that has to have them
  private final ZstdDecompressCtx zstd;
  private byte[] raw = new byte[0];
  private long[] wide = new long[0];

  Pages(ZstdDecompressCtx zstd) {
    this.zstd = zstd;
  }

  static long[] room(long[] held, int count) {
    return held.length < count ? new long[count] : held;
  }

  static int[] room(int[] held, int count) {
    return held.length < count ? new int[count] : held;
  }

  static byte[] room(byte[] held, int count) {
    return held.length < count ? new byte[count] : held;
  }

  static void need(boolean isSo, String what) {
    if (!isSo) {
      throw new IllegalArgumentException(what);
    }
  }

  static int number(byte[] page, int at, int end) {
    need(at >= 0 && at + 4 <= end, "a page that ends early");
    return Platform.getInt(page, Platform.BYTE_ARRAY_OFFSET + (long) at);
  }

  static long word(byte[] page, int at, int end) {
    need(at >= 0 && at + 8 <= end, "a page that ends early");
    return Platform.getLong(page, Platform.BYTE_ARRAY_OFFSET + (long) at);
  }

  static int codec(byte[] page, int at, int end) {
    need(end > at, "a page of no bytes");
    return page[at];
  }

  /** Returns the length of a part, which lies behind it, and does not end past the page. */
  static int part(byte[] page, int at, int end) {
    int length = number(page, at, end);
    need(length >= 0 && length <= end - at - 4, "a part that ends past its page");
    return length;
  }

  /** Reads which rows have a value; returns where the values begin. */
  int nulls(byte[] page, int end, StoredColumns$Column column) {
    int rows = column.rows;
    int state = codec(page, 0, end);
    if (state == NO_NULLS) {
      column.nulls = 0;
      return 1;
    }
    if (state == ALL_NULLS) {
      column.nulls = rows;
      return end;
    }
    need(state == SOME_NULLS, "nulls that are not told");
    int length = part(page, 1, end);
    column.valid = bits(page, 5, 5 + length, column.valid, rows);
    int there = 0;
    for (int i = 0; i < (rows + 7) / 8; i++) {
      there += Integer.bitCount(column.valid[i] & 255);
    }
    column.nulls = rows - there;
    return 5 + length;
  }

  /** Decodes booleans, eight to a byte; what follows the last is no. */
  byte[] bits(byte[] page, int at, int end, byte[] held, int count) {
    int size = (count + 7) / 8;
    byte[] found = held == null || held.length < size ? new byte[size] : held;
    int codec = codec(page, at, end);
    if (codec == CONSTANT) {
      java.util.Arrays.fill(found, 0, size, word(page, at + 1, end) == 0 ? (byte) 0 : (byte) -1);
    } else if (codec == PLAIN) {
      need(end - at - 1 >= size, "too few bytes for booleans");
      System.arraycopy(page, at + 1, found, 0, size);
    } else {
      need(codec == ZSTD, "booleans in a codec that is not known");
      inflate(page, at + 1, end, found, 0, size);
    }
    if ((count & 7) != 0) {
      found[size - 1] = (byte) (found[size - 1] & (1 << (count & 7)) - 1);
    }
    return found;
  }

  /** Undoes zstd into an array, where there must be just so many bytes. */
  void inflate(byte[] page, int at, int end, byte[] to, int start, int size) {
    need(at <= end, "a page that ends early");
    long told = Zstd.getFrameContentSize(page, at, end - at);
    need(told < 0 || told == size, "a page that inflates to other bytes than its values need");
    int found = zstd.decompressByteArray(to, start, size, page, at, end - at);
    need(found == size, "a page that inflates to fewer bytes than its values need");
  }

  void ints(byte[] page, int at, int end, long[] out, int count) {
    need(count >= 0 && count <= out.length, "more numbers than there is room for");
    int codec = codec(page, at, end);
    if (codec == CONSTANT) {
      java.util.Arrays.fill(out, 0, count, word(page, at + 1, end));
      return;
    }
    boolean isKnown = codec == PLAIN || codec == ZSTD || codec == DELTA || codec == PCO || codec == PLANES;
    need(isKnown, "numbers in a codec that is not known");
    need(end - at >= 10, "a page that ends early");
    int width = page[at + 1];
    need(width == 1 || width == 2 || width == 4 || width == 8, "numbers of a width that is not known");
    need((long) count * width <= MAX_BYTES, "too many numbers in a page");
    long base = word(page, at + 2, end);
    if (codec == PLAIN) {
      need(end - at - 10 == count * width, "other bytes than the numbers need");
      widen(page, at + 10, width, out, 0, count, base);
    } else if (codec == ZSTD) {
      raw = room(raw, count * width);
      inflate(page, at + 10, end, raw, 0, count * width);
      widen(raw, 0, width, out, 0, count, base);
    } else if (codec == DELTA) {
      long step = word(page, at + 10, end);
      if (count > 1) {
        raw = room(raw, (count - 1) * width);
        inflate(page, at + 18, end, raw, 0, (count - 1) * width);
        widen(raw, 0, width, out, 1, count - 1, step);
      }
      if (count > 0) {
        out[0] = base;
        sum(out, count);
      }
    } else if (codec == PCO) {
      need(width > 1, "pcodec of single bytes");
      Pco.read(page, at + 10, end, width, out, count);
      if (base != 0) {
        add(out, count, base);
      }
    } else {
      planes(page, at + 10, end, width, out, count, base);
    }
  }

  private void planes(byte[] page, int at, int end, int width, long[] out, int count, long base) {
    int from = at;
    for (int rank = 0; rank < width; rank++) {
      int length = part(page, from, end);
      byte[] plane = page;
      int start = from + 4;
      if (length != count) {
        raw = room(raw, count);
        inflate(page, start, start + length, raw, 0, count);
        plane = raw;
        start = 0;
      }
      if (rank == 0) {
        widenBytes(plane, start, out, 0, count, base);
      } else {
        addPlane(plane, start, out, count, 8 * rank);
      }
      from += 4 + length;
    }
  }

  /** Decodes doubles, bit by bit. */
  void reals(byte[] page, int at, int end, long[] out, int count) {
    int codec = codec(page, at, end);
    if (codec == DECIMAL) {
      need(at + 1 < end && page[at + 1] >= 0 && page[at + 1] <= MAX_PLACES, "decimals of too many places");
      ints(page, at + 2, end, out, count);
      double scale = 1;
      for (int i = 0; i < page[at + 1]; i++) {
        scale *= 10;
      }
      scale(out, count, scale);
    } else if (codec == REAL_PCO) {
      Pco.read(page, at + 1, end, 0, out, count);
    } else {
      ints(page, at, end, out, count);
    }
  }

  /** Decodes numbers all of which are below an end, and not negative. */
  void numbersBelow(byte[] page, int at, int end, int[] out, int start, int count, int below) {
    wide = room(wide, count);
    ints(page, at, end, wide, count);
    narrow(wide, out, start, count, 0, (long) below - 1);
  }

  /** Decodes numbers behind those that an array has, none of which is negative. */
  void positives(byte[] page, int at, int end, long[] out, int used, int count) {
    wide = room(wide, count);
    ints(page, at, end, wide, count);
    long all = 0;
    for (int i = 0; i < count; i++) {
      all |= wide[i];
    }
    need(all >= 0, "a negative number");
    System.arraycopy(wide, 0, out, used, count);
  }

  /** Decodes texts that need nothing but their page. */
  void texts(byte[] page, int at, int end, int count, Letters to) {
    int codec = codec(page, at, end);
    if (codec == TEXT_CONSTANT) {
      int width = end - at - 1;
      need((long) width * count <= MAX_BYTES, "texts of too many bytes");
      to.room(count, width * count);
      for (int i = 0; i < count; i++) {
        System.arraycopy(page, at + 1, to.data, i * width, width);
        to.ends[i + 1] = (i + 1) * width;
      }
      return;
    }
    need(codec == TEXT_PLAIN || codec == TEXT_ZSTD, "texts in a codec that is not known");
    need(end - at >= 9, "a page that ends early");
    int sizes = number(page, at + 1, end);
    int size = number(page, at + 5, end);
    int start = at + 9 + sizes;
    need(sizes >= 0 && sizes <= end - at - 9 && size >= 0 && size <= MAX_BYTES, "lengths that end past their page");
    wide = room(wide, count);
    ints(page, at + 9, start, wide, count);
    to.room(count, 0);
    need(summed(wide, to.ends, count, size), "texts of other bytes than their lengths");
    if (codec == TEXT_PLAIN) {
      need(end - start == size, "texts of other bytes than their lengths");
      to.room(count, size);
      System.arraycopy(page, start, to.data, 0, size);
    } else {
      long told = Zstd.getFrameContentSize(page, start, end - start);
      boolean isPossible = size >> MAX_GAIN_LOG <= end - start;
      need(isPossible && (told < 0 || told == size), "texts that inflate to other bytes than they have");
      to.room(count, size);
      inflate(page, start, end, to.data, 0, size);
    }
  }

  /** Adds lengths up to where texts end; whether none is negative, and all are so many bytes. */
  static boolean summed(long[] lengths, int[] ends, int count, int size) {
    long all = 0;
    long sum = 0;
    for (int i = 0; i < count; i++) {
      long length = lengths[i];
      all |= length | size - length;
      sum += length;
      ends[i + 1] = (int) sum;
    }
    return all >= 0 && sum == size;
  }

  static void widen(byte[] from, int at, int width, long[] out, int start, int count, long base) {
    long place = Platform.BYTE_ARRAY_OFFSET + (long) at;
    if (width == 1) {
      widenBytes(from, at, out, start, count, base);
    } else if (width == 2) {
      widenShorts(from, place, out, start, count, base);
    } else if (width == 4) {
      widenInts(from, place, out, start, count, base);
    } else {
      Platform.copyMemory(from, place, out, Platform.LONG_ARRAY_OFFSET + 8L * start, 8L * count);
      for (int i = start; i < start + count; i++) {
        out[i] += base;
      }
    }
  }

  static void widenBytes(byte[] from, int at, long[] out, int start, int count, long base) {
    for (int i = 0; i < count; i++) {
      out[start + i] = (from[at + i] & 255) + base;
    }
  }

  static void widenShorts(byte[] from, long place, long[] out, int start, int count, long base) {
    for (int i = 0; i < count; i++) {
      out[start + i] = (Platform.getShort(from, place + 2L * i) & 65535) + base;
    }
  }

  static void widenInts(byte[] from, long place, long[] out, int start, int count, long base) {
    for (int i = 0; i < count; i++) {
      out[start + i] = (Platform.getInt(from, place + 4L * i) & 0xFFFFFFFFL) + base;
    }
  }

  static void addPlane(byte[] from, int at, long[] out, int count, int bits) {
    for (int i = 0; i < count; i++) {
      out[i] += (from[at + i] & 255L) << bits;
    }
  }

  static void sum(long[] out, int count) {
    long before = out[0];
    for (int i = 1; i < count; i++) {
      before += out[i];
      out[i] = before;
    }
  }

  static void add(long[] out, int count, long base) {
    for (int i = 0; i < count; i++) {
      out[i] += base;
    }
  }

  static void add(long[] out, long[] from, int count) {
    for (int i = 0; i < count; i++) {
      out[i] += from[i];
    }
  }

  static void scale(long[] out, int count, double scale) {
    for (int i = 0; i < count; i++) {
      out[i] = Double.doubleToRawLongBits(out[i] / scale);
    }
  }

  static void narrow(long[] from, int[] out, int start, int count, long least, long most) {
    long all = 0;
    for (int i = 0; i < count; i++) {
      long value = from[i];
      all |= value - least | most - value;
      out[start + i] = (int) value;
    }
    need(all >= 0, "a number beyond what there is");
  }

  /** Whether all numbers are of 32 bits. */
  static boolean areInts(long[] values, int count) {
    long all = 0;
    for (int i = 0; i < count; i++) {
      all |= values[i] - Integer.MIN_VALUE | Integer.MAX_VALUE - values[i];
    }
    return all >= 0;
  }

  /** Puts values where rows have one, from the last on. */
  static void spread(long[] values, byte[] valid, int rows, int count) {
    int next = count;
    for (int row = rows - 1; row >= 0; row--) {
      boolean isThere = (valid[row >> 3] & 1 << (row & 7)) != 0;
      next -= isThere ? 1 : 0;
      values[row] = isThere ? values[next] : 0;
    }
  }

  static void spread(int[] values, byte[] valid, int rows, int count) {
    int next = count;
    for (int row = rows - 1; row >= 0; row--) {
      boolean isThere = (valid[row >> 3] & 1 << (row & 7)) != 0;
      next -= isThere ? 1 : 0;
      values[row] = isThere ? values[next] : 0;
    }
  }

  /** Has texts that are null end where they begin. */
  static int[] spreadEnds(int[] ends, byte[] valid, int rows, int count) {
    int[] found = ends.length < rows + 1 ? java.util.Arrays.copyOf(ends, rows + 1) : ends;
    int next = count;
    for (int row = rows - 1; row >= 0; row--) {
      found[row + 1] = found[next];
      next -= valid[row >> 3] >> (row & 7) & 1;
    }
    return found;
  }

  static byte[] spreadBits(byte[] dense, byte[] valid, int rows) {
    byte[] found = new byte[(rows + 7) / 8];
    int next = 0;
    for (int row = 0; row < rows; row++) {
      if ((valid[row >> 3] & 1 << (row & 7)) != 0) {
        int bit = dense[next >> 3] >> (next & 7) & 1;
        found[row >> 3] |= (byte) (bit << (row & 7));
        next++;
      }
    }
    return found;
  }

  static void copy(byte[] from, int at, byte[] to, int start, int length) {
    long source = Platform.BYTE_ARRAY_OFFSET + (long) at;
    long target = Platform.BYTE_ARRAY_OFFSET + (long) start;
    Platform.putLong(to, target, Platform.getLong(from, source));
    for (int i = 8; i < length; i += 8) {
      Platform.putLong(to, target + i, Platform.getLong(from, source + i));
    }
  }
}
