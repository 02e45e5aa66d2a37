"""Read in the JVM what is described of a table, by the class that tasks have, without a query around it.

Values go to a file, or their checksum is compared; files and descriptions are damaged in the JVM, since a call of its
bridge takes longer than a reading. It does not judge what was read.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from tidelake.spark.jvm.compile import java_class
from tidelake.spark.types import spark_schema

# Reads what is described, by a class that tasks have.
READS = """
package tidelake;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedOutputStream;
import java.io.Closeable;
import java.io.DataOutputStream;
import java.io.FileOutputStream;
import java.io.OutputStream;
import java.io.RandomAccessFile;
import java.lang.reflect.Method;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.function.BiFunction;
import java.util.zip.CRC32;
import java.util.zip.CheckedOutputStream;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;

public class Reads {
  static final long[] NUMBERS = {
      -1, 0, 1, 2, 7, 64, 128, 4096, 65535, 1 << 20, (1 << 24) + 1, 1 << 29, (1 << 30) - 1, 1 << 30, (1L << 31) - 1,
      1L << 31, (1L << 32) + 8, Long.MAX_VALUE, Long.MIN_VALUE, -(1L << 31)};
  static final byte[] BYTES = {0, 1, 2, 3, 8, 16, 17, 18, 19, 20, 32, 33, 34, 127, -128, -1};
  private final BiFunction reader;
  private final StructType schema;

  public Reads(Object reader, Object schema) {
    this.reader = (BiFunction) reader;
    this.schema = (StructType) schema;
  }

  /** Writes of each block how many rows it has, and of each of its columns which rows have a value, and the values. */
  public long dump(byte[] described, String path) throws Exception {
    return dump(described, new FileOutputStream(path));
  }

  long dump(byte[] described, OutputStream into) throws Exception {
    CheckedOutputStream sum = new CheckedOutputStream(new BufferedOutputStream(into), new CRC32());
    DataOutputStream out = new DataOutputStream(sum);
    Iterator blocks = (Iterator) reader.apply(described, schema);
    try {
      while (blocks.hasNext()) {
        ColumnarBatch batch = (ColumnarBatch) blocks.next();
        out.writeInt(batch.numRows());
        for (int i = 0; i < schema.size(); i++) {
          write(batch.column(i), schema.fields()[i].dataType(), batch.numRows(), out);
        }
      }
    } finally {
      ((Closeable) blocks).close();
      out.close();
    }
    return sum.getChecksum().getValue();
  }

  /** A null is written as what is read there by those who do not ask whether it is one. */
  static void write(ColumnVector column, DataType type, int rows, DataOutputStream out) throws Exception {
    for (int row = 0; row < rows; row++) {
      out.writeByte(column.isNullAt(row) ? 0 : 1);
    }
    for (int row = 0; row < rows; row++) {
      if (type instanceof StringType) {
        byte[] text = column.getUTF8String(row).getBytes();
        out.writeInt(text.length);
        out.write(text);
      } else if (type instanceof IntegerType) {
        out.writeLong(column.getInt(row));
      } else if (type instanceof DoubleType) {
        out.writeLong(Double.doubleToRawLongBits(column.getDouble(row)));
      } else if (type instanceof BooleanType) {
        out.writeLong(column.getBoolean(row) ? 1 : 0);
      } else {
        out.writeLong(column.getLong(row));
      }
    }
  }

  /** What becomes of a reading: its checksum, or that it is refused in words; anything else comes through. */
  String outcome(byte[] described, String path) throws Exception {
    try {
      return "read " + dump(described, OutputStream.nullOutputStream());
    } catch (RuntimeException error) {
      String said = String.valueOf(error.getMessage());
      if (!said.startsWith("tidelake: ") || !said.contains("object=" + path)) {
        throw error;
      }
      return "refused";
    }
  }

  /** Flips single bits of a file, each for one reading; says of each reading what became of it. */
  public List flips(byte[] described, String path, int count, long seed) throws Exception {
    Random chance = new Random(seed);
    List found = new ArrayList();
    RandomAccessFile file = new RandomAccessFile(path, "rw");
    for (int i = 0; i < count; i++) {
      long place = (long) (chance.nextDouble() * file.length());
      file.seek(place);
      int held = file.read();
      file.seek(place);
      file.write(held ^ 1 << chance.nextInt(8));
      found.add(outcome(described, path));
      file.seek(place);
      file.write(held);
    }
    file.close();
    return found;
  }

  /** Has one number of a description be another, as a footer could have it, each for one reading. */
  public List misled(byte[] described, String path, int count, long seed) throws Exception {
    Random chance = new Random(seed);
    ObjectMapper json = new ObjectMapper();
    List found = new ArrayList();
    for (int i = 0; i < count; i++) {
      Map told = (Map) json.readValue(described, Map.class);
      List places = new ArrayList();
      numbers(told, places);
      Object[] place = (Object[]) places.get(chance.nextInt(places.size()));
      long held = ((Number) value(place)).longValue();
      boolean isNear = chance.nextInt(3) == 0;
      Long other = Long.valueOf(isNear ? held + chance.nextInt(9) - 4 : NUMBERS[chance.nextInt(NUMBERS.length)]);
      if (place[0] instanceof Map) {
        ((Map) place[0]).put(place[1], other);
      } else {
        ((List) place[0]).set(((Integer) place[1]).intValue(), other);
      }
      found.add(outcome(json.writeValueAsBytes(told), path));
    }
    return found;
  }

  /** Changes bytes of pages and buffers below their checksums, each time for one reading. */
  public List spoilt(byte[] described, String path, int count, long seed) throws Exception {
    Method sum = Class.forName("tidelake.Sums", true, reader.getClass().getClassLoader())
        .getDeclaredMethod("of", new Class[] {byte[].class, int.class});
    sum.setAccessible(true);
    Random chance = new Random(seed);
    ObjectMapper json = new ObjectMapper();
    Path file = Paths.get(path, new String[0]);
    byte[] whole = Files.readAllBytes(file);
    List found = new ArrayList();
    for (int i = 0; i < count; i++) {
      Map told = (Map) json.readValue(described, Map.class);
      List places = new ArrayList();
      places(told, places);
      Map place = (Map) places.get(chance.nextInt(places.size()));
      int at = ((Number) place.get("at")).intValue();
      int length = ((Number) place.get("len")).intValue();
      byte[] bad = (byte[]) whole.clone();
      for (int n = 1 + chance.nextInt(3); n > 0 && length > 0; n--) {
        int reach = chance.nextBoolean() ? Math.min(length, 40) : length;
        int byteAt = at + chance.nextInt(reach);
        bad[byteAt] = chance.nextBoolean() ? BYTES[chance.nextInt(BYTES.length)] : (byte) chance.nextInt(256);
      }
      for (int n = 0; n < places.size(); n++) {
        Map each = (Map) places.get(n);
        int start = ((Number) each.get("at")).intValue();
        int size = ((Number) each.get("len")).intValue();
        byte[] piece = java.util.Arrays.copyOfRange(bad, start, start + size);
        Object[] given = new Object[] {piece, Integer.valueOf(size)};
        each.put("sum", String.format("%016x", new Object[] {sum.invoke(null, given)}));
      }
      Files.write(file, bad, new java.nio.file.OpenOption[0]);
      found.add(outcome(json.writeValueAsBytes(told), path));
    }
    Files.write(file, whole, new java.nio.file.OpenOption[0]);
    return found;
  }

  /** All places that are told of, wherever they stand. */
  static void places(Object within, List found) {
    if (within instanceof Map && ((Map) within).containsKey("sum")) {
      found.add(within);
    }
    Object[] inner = within instanceof Map ? ((Map) within).values().toArray()
        : within instanceof List ? ((List) within).toArray() : new Object[0];
    for (int i = 0; i < inner.length; i++) {
      places(inner[i], found);
    }
  }

  static Object value(Object[] place) {
    return place[0] instanceof Map
        ? ((Map) place[0]).get(place[1]) : ((List) place[0]).get(((Integer) place[1]).intValue());
  }

  static void numbers(Object within, List found) {
    boolean isMap = within instanceof Map;
    Object[] keys = isMap ? ((Map) within).keySet().toArray() : new Object[((List) within).size()];
    for (int i = 0; i < keys.length; i++) {
      Object[] place = new Object[] {within, isMap ? keys[i] : (Object) Integer.valueOf(i)};
      Object value = value(place);
      if (value instanceof Number) {
        found.add(place);
      } else if (value instanceof Map || value instanceof List) {
        numbers(value, found);
      }
    }
  }
}
"""


class Reads:
    """Make objects that read what is described, of a class that is compiled once."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark: Any = spark
        compiler = spark.sparkContext._jvm.org.codehaus.janino.SimpleCompiler()  # type: ignore[union-attr]
        compiler.setParentClassLoader(self._spark._jsparkSession.getClass().getClassLoader())
        compiler.cook(READS)
        self._made = compiler.getClassLoader().loadClass("tidelake.Reads").getConstructors()[0]

    def of(self, table: Any) -> Any:
        """Return what reads a table."""
        spark = self._spark
        arguments = spark.sparkContext._gateway.new_array(spark.sparkContext._jvm.Object, 2)
        arguments[0] = java_class(spark, "tidelake.StoredPages").getDeclaredConstructor(None).newInstance(None)
        arguments[1] = spark._jsparkSession.parseDataType(spark_schema(table.schema).json())
        return self._made.newInstance(arguments)
