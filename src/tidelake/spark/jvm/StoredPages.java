package tidelake;

import com.github.luben.zstd.Zstd;
import com.github.luben.zstd.ZstdDecompressCtx;
import java.io.IOException;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Reads blocks of extents of the third body, too, whose columns are pages in codecs of their own. Python says where the
 * pages lie, and once for an extent where the dictionaries, templates and words are that they refer to. What is doubled
 * of Python is how pages are decoded: docs/format.md is the specification of both. This runs on executors.
 *
 * Numbers that say where something lies are checked before anything is read from there: bytes are then read, and
 * written, without a look at the bounds of arrays.
 */
public class StoredPages extends StoredColumns {
  StoredColumns$Blocks blocks(Map described, StructType schema) {
    return new PageBlocks(described, schema);
  }
}

/** The blocks of one task, be they pages or Arrow buffers. */
class PageBlocks extends StoredColumns$Blocks {
  private final Pages pages;
  private final PageColumn[] decoded;
  private Map opened = null;  // the extent that dictionaries are held of
  private Map base = null;  // the column that others are differences from, and that nobody wants, decoded in this block
  private long[] bases = new long[0];

  PageBlocks(Map described, StructType schema) {
    super(described, schema);
    pages = new Pages(codec);
    decoded = new PageColumn[columns.length];
    for (int i = 0; i < decoded.length; i++) {
      decoded[i] = new PageColumn(columns[i], pages);
    }
  }

  void read(Map of, List places, int rows) throws IOException {
    if (!of.containsKey("shared")) {
      super.read(of, places, rows);
      return;
    }
    List shared = (List) of.get("shared");
    if (opened != of) {
      for (int i = 0; i < decoded.length; i++) {
        decoded[i].forget();
      }
      opened = of;
    }
    base = null;
    for (int i = 0; i < decoded.length; i++) {
      Map place = (Map) places.get(i);
      if (place.containsKey("at") && !place.containsKey("base")) {
        open(decoded[i], (Map) shared.get(i));
        int end = fetch(place);
        decoded[i].read(piece, end, null);
      }
    }
    for (int i = 0; i < decoded.length; i++) {  // those that are differences from columns which are decoded by now
      Map place = (Map) places.get(i);
      if (place.containsKey("base")) {
        long[] from = base((Map) place.get("base"), places, rows);
        int end = fetch(place);
        decoded[i].read(piece, end, from);
      }
    }
  }

  /** Reads what the texts of a column refer to in all blocks of an extent, once. */
  private void open(PageColumn column, Map shared) throws IOException {
    if (column.isOpen || shared == null) {
      return;
    }
    if (shared.containsKey("dictionary")) {
      column.dictionary = letters((Map) shared.get("dictionary"));
      column.words = new UTF8String[column.dictionary.count];
    } else {
      Letters own = letters((Map) shared.get("templates"));
      column.templates = new Templates(own, letters((Map) shared.get("words")));
    }
    column.isOpen = true;
  }

  private Letters letters(Map place) throws IOException {
    int end = fetch(place);
    Letters found = new Letters();
    pages.texts(piece, 0, end, ((Number) place.get("count")).intValue(), found);
    return found;
  }

  /** Returns the values of the column that another is differences from, which has no nulls. */
  private long[] base(Map place, List places, int rows) throws IOException {
    for (int i = 0; i < decoded.length; i++) {
      Map other = (Map) places.get(i);
      if (place.get("at").equals(other.get("at")) && columns[i].nulls == 0) {
        return decoded[i].wide(rows);
      }
    }
    if (base == null || !place.get("at").equals(base.get("at"))) {
      int end = fetch(place);
      if (end < 1 || piece[0] != Pages.NO_NULLS) {
        throw new IllegalArgumentException("differences from a column with nulls");
      }
      bases = Pages.room(bases, rows);
      pages.ints(piece, 1, end, bases, rows);
      base = place;
    }
    return bases;
  }
}

/** One column of Spark's, and the arrays that its pages are decoded into, block by block. */
class PageColumn {
  boolean isOpen = false;
  Letters dictionary = null;
  UTF8String[] words = null;
  Templates templates = null;
  private final StoredColumns$Column column;
  private final Pages pages;
  private final boolean isInt;
  private final boolean isReal;
  private final boolean isBool;
  private long[] longs = new long[0];
  private int[] ints = new int[0];
  private final Letters letters = new Letters();

  PageColumn(StoredColumns$Column column, Pages pages) {
    this.column = column;
    this.pages = pages;
    isInt = column instanceof StoredColumns$Ints;
    isReal = column instanceof StoredColumns$Doubles;
    isBool = column instanceof StoredColumns$Bools;
  }

  void forget() {
    isOpen = false;
    dictionary = null;
    words = null;
    templates = null;
  }

  /** Decodes a page up to its end; a column may be differences from the values of another. */
  void read(byte[] page, int end, long[] from) {
    int rows = column.rows;
    int at = pages.nulls(page, end, column);
    if (column.nulls == rows) {
      return;
    }
    int count = rows - column.nulls;
    if (column.isText()) {
      readTexts(page, at, end, count);
    } else if (isBool) {
      int bytes = (rows + 7) / 8;
      column.values = pages.bits(page, at, end, column.values, count);
      if (column.nulls > 0) {
        column.values = Pages.spreadBits(column.values, column.valid, rows);
      }
      column.lend();
    } else {
      readNumbers(page, at, end, count, from);
    }
  }

  private void readNumbers(byte[] page, int at, int end, int count, long[] from) {
    int rows = column.rows;
    longs = Pages.room(longs, rows);
    if (from != null) {
      if (at >= end || page[at] != Pages.DIFFERENCE) {
        throw new IllegalArgumentException("differences in another codec");
      }
      pages.ints(page, at + 1, end, longs, count);
    } else if (isReal) {
      pages.reals(page, at, end, longs, count);
    } else {
      pages.ints(page, at, end, longs, count);
    }
    if (column.nulls > 0) {
      Pages.spread(longs, column.valid, rows, count);
    }
    if (from != null) {
      Pages.add(longs, from, rows);
    }
    if (isInt) {
      ints = Pages.room(ints, rows);
      Pages.narrow(longs, ints, 0, rows, Integer.MIN_VALUE, Integer.MAX_VALUE);
      column.lend(ints);
    } else {
      column.lend(longs);
    }
  }

  /** Returns the numbers of the block as they were decoded. */
  long[] wide(int rows) {
    return longs;
  }

  private void readTexts(byte[] page, int at, int end, int count) {
    StoredColumns$Texts texts = (StoredColumns$Texts) column;
    int rows = column.rows;
    int codec = Pages.codec(page, at, end);
    if (templates != null) {
      templates.read(pages, page, at, end, count, letters);
    } else if (codec == Pages.TEXT_CONSTANT) {
      letters.count = 1;
      letters.put(page, at + 1, end - at - 1);
      ints = Pages.room(ints, rows);
      java.util.Arrays.fill(ints, 0, rows, 0);
      texts.lend(ints, new UTF8String[1], letters.ends, letters.data);
      return;
    } else if (codec == Pages.TEXT_DICTIONARY) {
      if (dictionary == null) {
        throw new IllegalArgumentException("no dictionary");
      }
      ints = Pages.room(ints, rows);
      pages.numbersBelow(page, at + 1, end, ints, 0, count, dictionary.count);
      if (column.nulls > 0) {
        Pages.spread(ints, column.valid, rows, count);
      }
      texts.lend(ints, words, dictionary.ends, dictionary.data);
      return;
    } else {
      pages.texts(page, at, end, count, letters);
    }
    if (column.nulls > 0) {
      letters.ends = Pages.spreadEnds(letters.ends, column.valid, rows, count);
    }
    texts.lend(letters.ends, letters.data);
  }
}

/** Texts in a row: where each ends, after where the first begins, and their bytes, behind which eight more may be read. */
class Letters {
  static final int SLACK = 8;
  int count = 0;
  int[] ends = new int[1];
  byte[] data = new byte[SLACK];

  /** Has room for so many texts of so many bytes. */
  void room(int texts, int bytes) {
    count = texts;
    ends = Pages.room(ends, texts + 1);
    ends[0] = 0;
    if (data.length - SLACK < bytes) {
      data = new byte[bytes + SLACK];
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
class Pages {
  static final int CONSTANT = 0;
  static final int PLAIN = 1;
  static final int ZSTD = 2;
  static final int DELTA = 3;
  static final int PCO = 4;
  static final int REAL_PCO = 5;
  static final int PLANES = 6;
  static final int DECIMAL = 7;
  static final int DIFFERENCE = 8;
  static final int TEXT_CONSTANT = 16;
  static final int TEXT_PLAIN = 17;
  static final int TEXT_ZSTD = 18;
  static final int TEXT_DICTIONARY = 19;
  static final int TEXT_TEMPLATES = 20;
  static final int NO_NULLS = 32;
  static final int ALL_NULLS = 33;
  static final int SOME_NULLS = 34;
  static final int MAX_PLACES = 9;
  static final int MAX_BYTES = Integer.MAX_VALUE - 64;  // of an array that has to have them
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
      need(told < 0 || told == size, "texts that inflate to other bytes than they have");
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

/**
 * The templates and words of a column, which its texts are put together of. The template of a text is cut at the holes
 * for its variables into pieces; a variable of a template is a slot, and in each block a slot has its values.
 */
class Templates {
  static final int TEXT = 0;
  static final int NUMBER = 1;
  static final int WORD = 2;
  static final int SAME = 3;
  static final int OWN_ROWS = 128;  // of a block that have a template, from which on its variables have pages of their own
  static final int MAX_WIDTH = 64;
  private static final byte HOLE = (byte) 255;
  private final int count;
  private final int[] firstSlot;
  private final byte[] pieces;
  private final int[] pieceEnds;
  private final Letters words;
  private int[] numbers = new int[0];
  private final int[] sizes;
  private final int[] kinds;
  private final int[] next;
  private final int[] widths;
  private final int[] prefixes;
  private final int[] suffixes;
  private final int[] stops;
  private long[] digits = new long[0];
  private int[] codes = new int[0];
  private final Letters texts = new Letters();
  private final Letters page = new Letters();
  private byte[] affixes = new byte[Letters.SLACK];
  private long[] lengths = new long[0];
  private long[] told = new long[0];

  Templates(Letters own, Letters words) {
    this.words = words;
    count = own.count;
    int letters = own.ends[count];
    int holes = 0;
    for (int i = 0; i < letters; i++) {
      holes += own.data[i] == HOLE ? 1 : 0;
    }
    firstSlot = new int[count + 1];
    pieces = new byte[letters - holes + Letters.SLACK];
    pieceEnds = new int[holes + count + 1];
    int used = 0;
    int slot = 0;
    int cut = 0;
    for (int template = 0; template < count; template++) {
      for (int i = own.ends[template]; i < own.ends[template + 1]; i++) {
        if (own.data[i] == HOLE) {
          cut++;
          pieceEnds[cut] = used;
          slot++;
        } else {
          pieces[used] = own.data[i];
          used++;
        }
      }
      cut++;
      pieceEnds[cut] = used;
      firstSlot[template + 1] = slot;
    }
    sizes = new int[count];
    kinds = new int[holes];
    next = new int[holes];
    widths = new int[holes];
    prefixes = new int[holes];
    suffixes = new int[holes];
    stops = new int[holes];
  }

  /** Puts the texts of a page together. */
  void read(Pages pages, byte[] data, int at, int end, int rows, Letters to) {
    Pages.need(at < end && data[at] == Pages.TEXT_TEMPLATES, "no templates");
    int length = Pages.part(data, at + 1, end);
    numbers = Pages.room(numbers, rows);
    pages.numbersBelow(data, at + 5, at + 5 + length, numbers, 0, rows, count);
    int from = at + 5 + length;
    int size = Pages.number(data, from, end);
    Pages.need(size >= 0 && size <= Pages.MAX_BYTES, "texts of too many bytes");
    java.util.Arrays.fill(sizes, 0);
    for (int i = 0; i < rows; i++) {
      sizes[numbers[i]]++;
    }
    slots(pages, data, from + 4, end);
    assemble(rows, size, to);
  }

  /** Decodes the values of all variables. */
  private void slots(Pages pages, byte[] data, int at, int end) {
    int inRest = 0;
    int own = 0;
    long values = 0;
    for (int template = 0; template < count; template++) {
      int variables = firstSlot[template + 1] - firstSlot[template];
      if (sizes[template] >= OWN_ROWS) {
        own += variables;
        values += (long) variables * sizes[template];
        continue;
      }
      for (int slot = firstSlot[template]; slot < firstSlot[template + 1]; slot++) {
        kinds[slot] = TEXT;
        next[slot] = inRest;
        inRest += sizes[template];
      }
    }
    Pages.need(values <= Pages.MAX_BYTES / 8, "too many variables in a page");
    int length = Pages.part(data, at, end);
    pages.texts(data, at + 4, at + 4 + length, inRest, texts);
    int from = at + 4 + length;
    Pages.need(Pages.number(data, from, end) == own, "other pages than there are variables");
    from += 4;
    told = Pages.room(told, own);
    lengths = Pages.room(lengths, own);
    length = Pages.part(data, from, end);
    pages.ints(data, from + 4, from + 4 + length, told, own);
    from += 4 + length;
    length = Pages.part(data, from, end);
    pages.ints(data, from + 4, from + 4 + length, lengths, own);
    from += 4 + length;
    int wordsUsed = 0;
    int digitsUsed = 0;
    int affixesUsed = 0;
    int number = 0;
    for (int template = 0; template < count; template++) {
      if (sizes[template] < OWN_ROWS) {
        continue;
      }
      for (int slot = firstSlot[template]; slot < firstSlot[template + 1]; slot++) {
        long kind = told[number];
        Pages.need(lengths[number] >= 0 && lengths[number] <= end - from, "a variable that ends past its page");
        int stop = from + (int) lengths[number];
        int rows = sizes[template];
        if (kind == WORD) {
          codes = roomFor(codes, wordsUsed, rows);
          wordsUsed = words(pages, data, from, stop, slot, wordsUsed, rows);
        } else if (kind == NUMBER) {
          digits = roomFor(digits, digitsUsed, rows);
          affixesUsed = affix(data, from, stop, slot, affixesUsed);
          int start = from + 5 + stops[slot] - prefixes[slot];
          pages.positives(data, start, stop, digits, digitsUsed, rows);
          next[slot] = digitsUsed;
          digitsUsed += rows;
        } else if (kind == TEXT) {
          next[slot] = texts.count;
          pages.texts(data, from, stop, rows, page);
          append(page);
        } else {
          Pages.need(kind == SAME && stop - from == 2, "a variable of a kind that is not known");
          int source = firstSlot[template] + (Platform.getShort(data, Platform.BYTE_ARRAY_OFFSET + (long) from) & 65535);
          Pages.need(slot > source, "a variable that is the same as a later one");
          kind = kinds[source];
          next[slot] = next[source];
          widths[slot] = widths[source];
          prefixes[slot] = prefixes[source];
          suffixes[slot] = suffixes[source];
          stops[slot] = stops[source];
        }
        kinds[slot] = (int) kind;
        from = stop;
        number++;
      }
    }
    Pages.need(from == end, "pages that end elsewhere than their block");
  }

  private int words(Pages pages, byte[] data, int at, int end, int slot, int used, int rows) {
    next[slot] = used;
    pages.numbersBelow(data, at, end, codes, used, rows, words.count);
    return used + rows;
  }

  /** Keeps what stands around the digits of a variable. */
  private int affix(byte[] data, int at, int end, int slot, int used) {
    Pages.need(end - at >= 5, "a variable that ends early");
    int prefix = Platform.getShort(data, Platform.BYTE_ARRAY_OFFSET + at + 1L) & 65535;
    int suffix = Platform.getShort(data, Platform.BYTE_ARRAY_OFFSET + at + 3L) & 65535;
    widths[slot] = data[at] & 255;
    Pages.need(widths[slot] <= MAX_WIDTH && prefix + suffix <= end - at - 5, "a prefix that ends past its page");
    if (affixes.length - Letters.SLACK < used + prefix + suffix) {
      affixes = java.util.Arrays.copyOf(affixes, 2 * (used + prefix + suffix) + Letters.SLACK);
    }
    System.arraycopy(data, at + 5, affixes, used, prefix + suffix);
    prefixes[slot] = used;
    suffixes[slot] = used + prefix;
    stops[slot] = used + prefix + suffix;
    return used + prefix + suffix;
  }

  /** Puts further texts behind those that are not in pages of their own. */
  private void append(Letters more) {
    int used = texts.ends[texts.count];
    int bytes = more.ends[more.count];
    Pages.need((long) used + bytes <= Pages.MAX_BYTES, "texts of too many bytes");
    if (texts.data.length - Letters.SLACK < used + bytes) {
      long larger = Math.min(2L * (used + bytes), Pages.MAX_BYTES);
      texts.data = java.util.Arrays.copyOf(texts.data, (int) larger + Letters.SLACK);
    }
    System.arraycopy(more.data, 0, texts.data, used, bytes);
    if (texts.ends.length < texts.count + more.count + 1) {
      texts.ends = java.util.Arrays.copyOf(texts.ends, 2 * (texts.count + more.count) + 1);
    }
    for (int i = 1; i <= more.count; i++) {
      texts.ends[texts.count + i] = used + more.ends[i];
    }
    texts.count += more.count;
  }

  static int[] roomFor(int[] held, int used, int more) {
    return held.length < used + more ? java.util.Arrays.copyOf(held, Math.max(2 * used, used + more)) : held;
  }

  static long[] roomFor(long[] held, int used, int more) {
    return held.length < used + more ? java.util.Arrays.copyOf(held, Math.max(2 * used, used + more)) : held;
  }

  /** Writes each text: the pieces of its template, and between them the next value of each of its variables. */
  private void assemble(int rows, int size, Letters to) {
    to.room(rows, 0);
    int[] ends = to.ends;
    byte[] found = to.data;
    int[] templates = numbers;
    int[] firstSlot = this.firstSlot;
    int[] pieceEnds = this.pieceEnds;
    byte[] pieces = this.pieces;
    int[] kinds = this.kinds;
    int[] next = this.next;
    int[] codes = this.codes;
    byte[] words = this.words.data;
    int[] wordEnds = this.words.ends;
    int used = 0;
    for (int row = 0; row < rows; row++) {
      int template = templates[row];
      int slot = firstSlot[template];
      int last = firstSlot[template + 1];
      int piece = slot + template;
      while (true) {
        int begin = pieceEnds[piece];
        int length = pieceEnds[piece + 1] - begin;
        if (length > found.length - Letters.SLACK - used) {
          found = grown(found, used, length, size);
        }
        Pages.copy(pieces, begin, found, used, length);
        used += length;
        if (slot == last) {
          break;
        }
        int at = next[slot];
        next[slot] = at + 1;
        if (kinds[slot] == NUMBER) {
          int most = stops[slot] - prefixes[slot] + MAX_WIDTH;
          if (most > found.length - Letters.SLACK - used) {
            found = grown(found, used, most, size);
          }
          used = put(digits[at], slot, found, used);
        } else {
          byte[] from = texts.data;
          int[] places = texts.ends;
          if (kinds[slot] == WORD) {
            from = words;
            places = wordEnds;
            at = codes[at];
          }
          begin = places[at];
          length = places[at + 1] - begin;
          if (length > found.length - Letters.SLACK - used) {
            found = grown(found, used, length, size);
          }
          Pages.copy(from, begin, found, used, length);
          used += length;
        }
        slot++;
        piece++;
      }
      ends[row + 1] = used;
    }
    Pages.need(used == size, "templates make other texts than are told");
    to.data = found;
  }

  /** Returns a larger array for texts, of so many bytes in the end, and what is written next. */
  private static byte[] grown(byte[] found, int used, int more, int size) {
    Pages.need(used <= size, "templates make longer texts than are told");
    long larger = Math.max((long) used + more, Math.min(2L * used, size)) + Letters.SLACK;
    Pages.need(larger <= Integer.MAX_VALUE - 8, "texts of too many bytes");
    return java.util.Arrays.copyOf(found, (int) larger);
  }

  /** Writes a number with what stands around it; returns where it ends. */
  private int put(long value, int slot, byte[] found, int used) {
    int prefix = suffixes[slot] - prefixes[slot];
    int suffix = stops[slot] - suffixes[slot];
    Pages.copy(affixes, prefixes[slot], found, used, prefix);
    int start = used + prefix;
    int width = widths[slot];
    int digits = 1;
    for (long rest = value / 10; rest > 0; rest /= 10) {
      digits++;
    }
    int end = start + Math.max(digits, width);
    for (int i = end - 1; i >= start; i--) {
      long rest = value / 10;
      found[i] = (byte) (48 + value - 10 * rest);
      value = rest;
    }
    Pages.copy(affixes, suffixes[slot], found, end, suffix);
    return end + suffix;
  }
}
