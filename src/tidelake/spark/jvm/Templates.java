package tidelake;

import org.apache.spark.unsafe.Platform;

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
  private byte[] affixes = new byte[Pages.SLACK];
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
    pieces = new byte[letters - holes + Pages.SLACK];
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
    long inRest = 0;
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
        next[slot] = (int) inRest;
        inRest += sizes[template];
      }
    }
    Pages.need(values + inRest <= Pages.MAX_BYTES / 8, "too many variables in a page");
    int length = Pages.part(data, at, end);
    pages.texts(data, at + 4, at + 4 + length, (int) inRest, texts);
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
    if (affixes.length - Pages.SLACK < used + prefix + suffix) {
      affixes = java.util.Arrays.copyOf(affixes, 2 * (used + prefix + suffix) + Pages.SLACK);
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
    if (texts.data.length - Pages.SLACK < used + bytes) {
      long larger = Math.min(2L * (used + bytes), Pages.MAX_BYTES);
      texts.data = java.util.Arrays.copyOf(texts.data, (int) larger + Pages.SLACK);
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
        if (length > found.length - Pages.SLACK - used) {
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
          if (most > found.length - Pages.SLACK - used) {
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
          if (length > found.length - Pages.SLACK - used) {
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
    long larger = Math.max((long) used + more, Math.min(2L * used, size)) + Pages.SLACK;
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
