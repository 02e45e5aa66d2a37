package tidelake;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.github.luben.zstd.ZstdDecompressCtx;
import java.io.Closeable;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.util.List;
import java.util.Map;
import java.util.function.BiFunction;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarArray;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.apache.spark.sql.vectorized.ColumnarMap;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Reads blocks of extents that lie on this machine, where the Python that planned says which bytes of which file are a
 * column's Arrow buffers. No Python process and no socket are between the bytes and Spark. It knows nothing of tables,
 * of formats' frames, or of conditions: what it is given are rows that are all wanted. This runs on executors. Columns
 * that are pages of the third body are read by StoredPages, which goes on from here.
 *
 * Bytes are verified by the checksum that the extent has of them before anything is read from them.
 */
public class StoredColumns implements BiFunction {
  /** Returns the batches of what Python described, one for each block. */
  public Object apply(Object described, Object schema) {
    try {
      return blocks((Map) new ObjectMapper().readValue((byte[]) described, Map.class), (StructType) schema);
    } catch (IOException error) {
      throw new RuntimeException(error);
    }
  }

  Blocks blocks(Map described, StructType schema) {
    return new Blocks(described, schema);
  }

  /** The blocks of one task; a batch is good until the next one is asked for. */
  public static class Blocks implements java.util.Iterator, Closeable {
    static final int MAX_ROWS = 1 << 24;  // that a block may have: there is room made for as many as are told
    static final int MAX_BYTES = Integer.MAX_VALUE - 8;  // of an array
    static final int SPARE = 4096;  // bytes, more than any writer pads a buffer by
    final Column[] columns;
    final ZstdDecompressCtx codec;
    byte[] piece = new byte[0];
    private final List extents;
    private RandomAccessFile file = null;
    private long size = 0;  // of the file
    private int extent = 0;
    private int block = 0;

    Blocks(Map described, StructType schema) {
      extents = (List) described.get("extents");
      List kinds = (List) described.get("kinds");
      columns = new Column[kinds.size()];
      for (int i = 0; i < columns.length; i++) {
        columns[i] = column((String) kinds.get(i), schema.fields()[i].dataType());
      }
      if (schema.fields().length != columns.length) {
        throw new IllegalArgumentException("other columns than were asked for");
      }
      codec = new ZstdDecompressCtx();  // last: it is not Java's memory, and nobody closes what was not made
    }

    static Column column(String kind, DataType type) {
      if (kind.equals("text")) {
        return new Texts(type);
      }
      if (kind.equals("long")) {
        return new Longs(type);
      }
      if (kind.equals("int")) {
        return new Ints(type);
      }
      if (kind.equals("double")) {
        return new Doubles(type);
      }
      if (kind.equals("bool")) {
        return new Bools(type);
      }
      if (kind.equals("count")) {
        return new Counts(type);
      }
      throw new IllegalArgumentException("columns of a kind that is not known: " + kind);
    }

    /** A number that is told, from 0 to the largest that it may be. */
    static int number(Object told, long most) {
      long found = ((Number) told).longValue();
      if (found < 0 || found > most) {
        throw new IllegalStateException("a number of " + found + " where no more than " + most + " may be");
      }
      return (int) found;
    }

    public boolean hasNext() {
      while (extent < extents.size() && block == ((List) ((Map) extents.get(extent)).get("blocks")).size()) {
        extent++;
        block = 0;
        close(file);
        file = null;
      }
      return extent < extents.size();
    }

    public Object next() {
      Map of = (Map) extents.get(extent);
      String path = (String) of.get("file");
      try {
        if (file == null) {
          file = new RandomAccessFile(path, "r");
          size = file.length();
        }
        Map told = (Map) ((List) of.get("blocks")).get(block);
        int rows = number(told.get("rows"), MAX_ROWS);
        List places = (List) told.get("columns");
        for (int i = 0; i < columns.length; i++) {
          columns[i].begin((Map) places.get(i), rows);
        }
        read(of, places, rows);
        block++;
        return new ColumnarBatch(columns, rows);
      } catch (IOException error) {
        throw new RuntimeException("tidelake: cannot read object=" + path + ": " + error, error);
      } catch (RuntimeException error) {
        String where = " object=" + path + " block=" + block;
        throw new IllegalStateException("tidelake: " + error.getMessage() + where, error);
      }
    }

    /** Reads all columns of a block of an extent. */
    void read(Map of, List places, int rows) throws IOException {
      if (of.containsKey("shared")) {
        throw new IllegalStateException("pages are not read here");
      }
      for (int i = 0; i < columns.length; i++) {
        Map place = (Map) places.get(i);
        if (place.containsKey("at")) {  // else nothing is stored: all are null, or counted
          unpack(place, columns[i], rows, (String) of.get("codec"));
          columns[i].lend();
        }
      }
    }

    /** Reads bytes of the object that is open into the array for them, verifies them, and returns how many they are. */
    int fetch(Map place) throws IOException {
      int length = number(place.get("len"), Math.min(size, MAX_BYTES));
      long start = ((Number) place.get("at")).longValue();
      if (start < 0 || start > size - length) {
        throw new IllegalStateException("a column that ends past its file");
      }
      if (piece.length < length) {
        piece = new byte[(int) Math.min(length + length / 4L, MAX_BYTES)];
      }
      file.seek(start);
      file.readFully(piece, 0, length);
      String sum = Long.toHexString(Sums.of(piece, length));
      if (!"0000000000000000".substring(sum.length()).concat(sum).equals(place.get("sum"))) {
        throw new IllegalStateException("checksum mismatch");
      }
      return length;
    }

    void unpack(Map place, Column column, int rows, String compressed) throws IOException {
      int length = fetch(place);
      List buffers = (List) place.get("bufs");
      if (column.nulls > 0 && column.nulls < rows) {
        column.valid = buffer(column.valid, (List) buffers.get(0), length, (rows + 7) / 8, compressed);
      }
      if (place.containsKey("width")) {
        int width = number(place.get("width"), MAX_BYTES);
        column.even(width);
        column.values = buffer(column.values, (List) buffers.get(2), length, width * rows, compressed);
      } else if (column.isText()) {
        column.offsets = buffer(column.offsets, (List) buffers.get(1), length, (rows + 1) * 4, compressed);
        column.values = buffer(column.values, (List) buffers.get(2), length, column.checked(), compressed);
      } else {
        column.values = buffer(column.values, (List) buffers.get(1), length, column.bytes(rows), compressed);
      }
    }

    /** Unpacks a buffer of which so many bytes are needed, into the array of the block before if it is large enough. */
    byte[] buffer(byte[] held, List place, int end, int least, String compressed) {
      int at = number(place.get(0), end);
      int length = number(place.get(1), end - at);
      if (least == 0) {
        return held;
      }
      long size = length;
      boolean isPlain = compressed == null;
      if (!isPlain) {
        if (length < 8) {
          throw new IllegalStateException("a buffer of " + length + " bytes does not say its size");
        }
        size = Platform.getLong(piece, Platform.BYTE_ARRAY_OFFSET + at);
        at += 8;
        length -= 8;
        isPlain = size == -1;
        size = isPlain ? length : size;
      }
      long most = isPlain ? length : Math.min(2L * least + SPARE, MAX_BYTES);
      if (size < least || size > most) {
        throw new IllegalStateException("a buffer of " + size + " bytes where " + least + " are needed");
      }
      byte[] given = held == null || held.length < size ? new byte[(int) size] : held;
      if (isPlain) {
        System.arraycopy(piece, at, given, 0, (int) size);
      } else if (codec.decompressByteArray(given, 0, (int) size, piece, at, length) != size) {
        throw new IllegalStateException("a buffer is not as long as it says");
      }
      return given;
    }

    public void close() {
      close(file);
      codec.close();
    }

    static void close(RandomAccessFile file) {
      try {
        if (file != null) {
          file.close();
        }
      } catch (IOException error) {
        return;  // it was only read
      }
    }
  }

  /**
   * A column whose arrays are those of one block after the other. What Spark reads are numbers in an array of any kind
   * at an address, so that the same code reads what was unpacked as bytes and what was decoded as numbers.
   */
  abstract static class Column extends ColumnVector {
    int rows;
    int nulls;
    boolean isTold;  // how many nulls there are
    long first;
    byte[] valid;
    byte[] offsets;
    byte[] values;
    Object numbers;
    long at;
    private long[] zeros = new long[0];

    Column(DataType type) {
      super(type);
    }

    /** Begins a block, of which it is told whether all rows are null or what they are counted from. */
    void begin(Map place, int count) {
      rows = count;
      isTold = place.get("nulls") != null;
      nulls = isTold ? Blocks.number(place.get("nulls"), count) : 0;
      first = place.containsKey("first") ? ((Number) place.get("first")).longValue() : 0;
      if (nulls == rows) {
        blank();
      } else if (!place.containsKey("at") && !isCounted()) {
        throw new IllegalStateException("a column that is not stored, and not null");
      }
    }

    /**
     * Has Spark read zeros of rows that are all null. Whoever reads a table by columns of his own that are NOT NULL is
     * not asked for nulls, and addresses are read without a check.
     */
    void blank() {
      zeros = zeros.length > rows ? zeros : new long[rows + 1];
      lend(zeros);
    }

    /** Has Spark read the bytes that were unpacked. */
    void lend() {
      numbers = values;
      at = Platform.BYTE_ARRAY_OFFSET;
    }

    void lend(long[] decoded) {
      numbers = decoded;
      at = Platform.LONG_ARRAY_OFFSET;
    }

    void lend(int[] decoded) {
      numbers = decoded;
      at = Platform.INT_ARRAY_OFFSET;
    }

    int bytes(int rows) {
      return rows * 8;
    }

    boolean isText() {
      return false;
    }

    boolean isCounted() {
      return false;
    }

    void even(int width) {
      throw new IllegalStateException("only texts have a width");
    }

    int checked() {
      throw new IllegalStateException("only texts have offsets");
    }

    public boolean isNullAt(int row) {
      return nulls > 0 && (nulls == rows || (valid[row >> 3] & 1 << (row & 7)) == 0);
    }

    public boolean hasNull() {
      return nulls > 0;
    }

    public int numNulls() {
      return nulls;
    }

    public void close() {}

    public void closeIfFreeable() {}

    public boolean getBoolean(int row) {
      throw new UnsupportedOperationException();
    }

    public byte getByte(int row) {
      throw new UnsupportedOperationException();
    }

    public short getShort(int row) {
      throw new UnsupportedOperationException();
    }

    public int getInt(int row) {
      throw new UnsupportedOperationException();
    }

    public long getLong(int row) {
      throw new UnsupportedOperationException();
    }

    public float getFloat(int row) {
      throw new UnsupportedOperationException();
    }

    public double getDouble(int row) {
      throw new UnsupportedOperationException();
    }

    public ColumnarArray getArray(int row) {
      throw new UnsupportedOperationException();
    }

    public ColumnarMap getMap(int row) {
      throw new UnsupportedOperationException();
    }

    public Decimal getDecimal(int row, int precision, int scale) {
      throw new UnsupportedOperationException();
    }

    public UTF8String getUTF8String(int row) {
      throw new UnsupportedOperationException();
    }

    public byte[] getBinary(int row) {
      throw new UnsupportedOperationException();
    }

    public ColumnVector getChild(int at) {
      throw new UnsupportedOperationException();
    }
  }

  static class Longs extends Column {
    Longs(DataType type) {
      super(type);
    }

    public long getLong(int row) {
      return Platform.getLong(numbers, at + 8L * row);
    }
  }

  static class Doubles extends Column {
    Doubles(DataType type) {
      super(type);
    }

    public double getDouble(int row) {
      return Platform.getDouble(numbers, at + 8L * row);
    }
  }

  static class Ints extends Column {
    Ints(DataType type) {
      super(type);
    }

    int bytes(int rows) {
      return rows * 4;
    }

    public int getInt(int row) {
      return Platform.getInt(numbers, at + 4L * row);
    }
  }

  static class Bools extends Column {
    Bools(DataType type) {
      super(type);
    }

    int bytes(int rows) {
      return (rows + 7) / 8;
    }

    void blank() {
      values = new byte[(rows + 7) / 8];
    }

    public boolean getBoolean(int row) {
      return (values[row >> 3] & 1 << (row & 7)) != 0;
    }
  }

  /** Numbers that are not stored: from the first on, row by row. */
  static class Counts extends Column {
    Counts(DataType type) {
      super(type);
    }

    boolean isCounted() {
      return true;
    }

    public long getLong(int row) {
      return first + row;
    }
  }

  /** Texts that lie in a row, each as long as the other or up to where the next begins, or that are words by number. */
  static class Texts extends Column {
    static final byte[] NOTHING = new byte[8];
    private int width;
    private byte[] letters;
    private int[] codes;
    private UTF8String[] words;
    private int[] wordEnds;

    Texts(DataType type) {
      super(type);
    }

    boolean isText() {
      return true;
    }

    void blank() {
      codes = null;
      width = 0;
      letters = NOTHING;
      super.blank();
    }

    void even(int given) {
      if (given < 1 || (long) given * rows > Blocks.MAX_BYTES || nulls > 0) {
        throw new IllegalStateException("texts of " + given + " bytes");
      }
      width = given;
    }

    /** Checks that every text ends where or after it begins, and returns where the last one does. */
    int checked() {
      width = 0;
      int last = Platform.getInt(offsets, Platform.BYTE_ARRAY_OFFSET);
      boolean isRising = last >= 0;
      for (int i = 1; i <= rows; i++) {
        int next = Platform.getInt(offsets, Platform.BYTE_ARRAY_OFFSET + 4L * i);
        isRising = isRising & next >= last;
        last = next;
      }
      if (!isRising) {
        throw new IllegalStateException("a text ends before it begins");
      }
      return last;
    }

    void lend() {
      codes = null;
      letters = values;
      numbers = offsets;
      at = Platform.BYTE_ARRAY_OFFSET;
    }

    /** Has Spark read decoded texts: where each ends, after the first's beginning, and the bytes of all. */
    void lend(int[] ends, byte[] decoded) {
      codes = null;
      width = 0;
      letters = decoded;
      lend(ends);
    }

    /** Has Spark read texts by their numbers among words; those that are null here are made once they are needed. */
    void lend(int[] decoded, UTF8String[] made, int[] ends, byte[] shared) {
      codes = decoded;
      words = made;
      wordEnds = ends;
      letters = shared;
    }

    /** Makes a word with an array of its own, of which Spark then needs no copy where it wants the bytes alone. */
    private UTF8String word(int code) {
      words[code] = UTF8String.fromBytes(java.util.Arrays.copyOfRange(letters, wordEnds[code], wordEnds[code + 1]));
      return words[code];
    }

    public UTF8String getUTF8String(int row) {
      if (codes != null) {
        UTF8String found = words[codes[row]];
        return found == null ? word(codes[row]) : found;
      }
      if (width > 0) {
        return UTF8String.fromAddress(letters, Platform.BYTE_ARRAY_OFFSET + (long) width * row, width);
      }
      int start = Platform.getInt(numbers, at + 4L * row);
      int end = Platform.getInt(numbers, at + 4L * row + 4);
      return UTF8String.fromAddress(letters, Platform.BYTE_ARRAY_OFFSET + (long) start, end - start);
    }

    public byte[] getBinary(int row) {
      return getUTF8String(row).getBytes();
    }
  }
}
