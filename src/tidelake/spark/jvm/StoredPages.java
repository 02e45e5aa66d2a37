package tidelake;

import java.io.IOException;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.types.StructType;
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
  static final int MAX_TEXTS = 1 << 24;  // of a dictionary: there is room made for as many as are told
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
        long[] from = base((Map) place.get("base"), places, rows, decoded[i].isInt);
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
    pages.texts(piece, 0, end, number(place.get("count"), MAX_TEXTS), found);
    return found;
  }

  /** Returns the values of the column that another is differences from, which has no nulls. */
  private long[] base(Map place, List places, int rows, boolean isInt) throws IOException {
    for (int i = 0; i < decoded.length; i++) {
      Map other = (Map) places.get(i);
      boolean isDecoded = place.get("at").equals(other.get("at")) && !other.containsKey("base");
      if (isDecoded && columns[i].nulls == 0 && decoded[i].isWhole() && decoded[i].isInt == isInt) {
        return decoded[i].longs;
      }
    }
    if (base == null || !place.get("at").equals(base.get("at"))) {
      int end = fetch(place);
      if (end < 1 || piece[0] != Pages.NO_NULLS) {
        throw new IllegalArgumentException("differences from a column with nulls");
      }
      bases = Pages.room(bases, rows);
      pages.ints(piece, 1, end, bases, rows);
      Pages.need(!isInt || Pages.areInts(bases, rows), "a number beyond 32 bits");
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
  final boolean isInt;
  private final boolean isReal;
  private final boolean isBool;
  long[] longs = new long[0];  // the numbers of the block, as they were decoded
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
    int told = column.nulls;
    int at = pages.nulls(page, end, column);
    Pages.need(!column.isTold || told == column.nulls, "other nulls than its footer tells");
    if (column.nulls == rows) {
      column.blank();
      return;
    }
    int count = rows - column.nulls;
    if (column.isText()) {
      readTexts(page, at, end, count);
    } else if (isBool) {
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

  /** Whether its values are whole numbers. */
  boolean isWhole() {
    return !isReal && !isBool && !column.isText();
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
