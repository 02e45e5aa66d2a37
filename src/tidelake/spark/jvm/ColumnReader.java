package tidelake;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Function;
import org.apache.arrow.vector.BaseFixedWidthVector;
import org.apache.arrow.vector.BigIntVector;
import org.apache.arrow.vector.Float8Vector;
import org.apache.arrow.vector.TimeStampMicroTZVector;
import org.apache.arrow.vector.ValueVector;
import org.apache.arrow.vector.VarCharVector;
import org.apache.arrow.vector.complex.StructVector;
import org.apache.spark.JobArtifactSet$;
import org.apache.spark.JobArtifactState;
import org.apache.spark.TaskContext;
import org.apache.spark.api.python.ChainedPythonFunctions;
import org.apache.spark.api.python.PythonEvalType$;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.NamedExpression$;
import org.apache.spark.sql.classic.SparkSession$;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan$ColumnarSupportMode;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.execution.datasources.v2.python.PythonBatch;
import org.apache.spark.sql.execution.datasources.v2.python.PythonCustomMetric$;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceReadInfo;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonInputPartition;
import org.apache.spark.sql.execution.datasources.v2.python.PythonScan;
import org.apache.spark.sql.execution.datasources.v2.python.UserDefinedPythonDataSource$;
import org.apache.spark.sql.execution.datasources.v2.python.UserDefinedPythonDataSource;
import org.apache.spark.sql.execution.python.ArrowPythonRunner$;
import org.apache.spark.sql.execution.python.ArrowPythonRunner;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.apache.spark.sql.vectorized.ArrowColumnVector;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;
import org.apache.spark.util.AccumulatorV2;
import org.slf4j.LoggerFactory;
import scala.Tuple2;
import scala.collection.Iterator;

/**
 * Hands the Arrow batches of a Python task to Spark as the columns that they are. Spark's own reader of Python sources
 * makes a row of each first, which takes longer than everything else. This runs on executors.
 */
public class ColumnReader implements PartitionReaderFactory, Serializable {
  private static final long serialVersionUID = 1L;
  private final UserDefinedPythonDataSource source;
  private final byte[] function;
  private final StructType schema;
  private final scala.Option artifacts;
  private final scala.Option session;
  private final String stored;

  public ColumnReader(
      UserDefinedPythonDataSource source, byte[] function, StructType schema, scala.Option artifacts,
      scala.Option session, String stored) {
    this.stored = stored;
    this.source = source;
    this.function = function;
    this.schema = schema;
    this.artifacts = artifacts;
    this.session = session;
  }

  /** Gives a scan of Spark's the same plan, and tasks that hand over columns. */
  public static class Scans implements Function {
    private String stored = null;

    /** Has tasks read what Python describes to them by a class that executors have; see StoredColumns. */
    public void readStored(String name) {
      stored = name;
    }

    /** Takes what Spark makes such a scan of: the source, its name, columns, options and the filters that it took. */
    public Object apply(Object given) {
      Object[] parts = (Object[]) given;
      return new TableScan(
          (PythonDataSourceV2) parts[0], (String) parts[1], (StructType) parts[2], (CaseInsensitiveStringMap) parts[3],
          (Filter[]) parts[4], stored);
    }
  }

  public boolean supportColumnarReads(InputPartition partition) {
    return true;
  }

  public PartitionReader createReader(InputPartition partition) {
    throw new UnsupportedOperationException("rows come as columns");
  }

  public PartitionReader createColumnarReader(InputPartition partition) {
    byte[] split = ((PythonInputPartition) partition).pickedPartition();
    java.util.Iterator blocks = stored == null ? null : Stored.blocks(stored, split, schema);
    return blocks == null ? ofPython(partition) : new Stored(this, partition, blocks);
  }

  PartitionReader ofPython(InputPartition partition) {
    SQLConf conf = SQLConf.get();
    scala.collection.immutable.Map metrics = PythonCustomMetric$.MODULE$.pythonMetrics();
    StructType input = new StructType(new StructField[] {
        new StructField(
            "struct", UserDefinedPythonDataSource$.MODULE$.readInputSchema(), true, Metadata.empty())});
    List functions = new ArrayList();
    functions.add(source.createPythonFunction(function));
    List chained = new ArrayList();
    chained.add(new Tuple2(
        new ChainedPythonFunctions(seq(functions)), Long.valueOf(NamedExpression$.MODULE$.newExprId().id())));
    ArrowPythonRunner runner = new ArrowPythonRunner(
        seq(chained), PythonEvalType$.MODULE$.SQL_MAP_ARROW_ITER_UDF(), new int[][] {{0}}, input,
        conf.sessionLocalTimeZone(), conf.arrowUseLargeVarTypes(),
        ArrowPythonRunner$.MODULE$.getPythonRunnerConfMap(conf), metrics, artifacts, session);
    InternalRow split = new GenericInternalRow(new Object[] {((PythonInputPartition) partition).pickedPartition()});
    InternalRow wrapped = new GenericInternalRow(new Object[] {split});
    TaskContext context = TaskContext.get();
    return new Columns(runner.compute(once(once(wrapped)), context.partitionId(), context), source, metrics);
  }

  static scala.collection.immutable.Seq seq(List list) {
    return scala.jdk.javaapi.CollectionConverters.asScala(list).toList();
  }

  static Iterator once(Object value) {
    List values = new ArrayList();
    values.add(value);
    return scala.jdk.javaapi.CollectionConverters.asScala(values.iterator());
  }

  static ColumnVector lent(ValueVector vector) {
    if (vector.getNullCount() > 0) {
      return new Lent(vector);
    }
    if (vector instanceof VarCharVector) {
      return new LentText((VarCharVector) vector);
    }
    if (vector instanceof Float8Vector || vector instanceof BigIntVector || vector instanceof TimeStampMicroTZVector) {
      return new LentNumbers((BaseFixedWidthVector) vector);
    }
    return new Lent(vector);
  }

  /** A column that the reader of the stream will fill again: who has read it must not close it. */
  static class Lent extends ArrowColumnVector {
    Lent(ValueVector vector) {
      super(vector);
    }

    public void close() {}

    public void closeIfFreeable() {}
  }

  /** Texts without nulls, read where they lie: Arrow checks every access twice. */
  static class LentText extends Lent {
    private final long offsets;
    private final long texts;

    LentText(VarCharVector vector) {
      super(vector);
      offsets = vector.getOffsetBuffer().memoryAddress();
      texts = vector.getDataBuffer().memoryAddress();
    }

    public boolean isNullAt(int row) {
      return false;
    }

    public UTF8String getUTF8String(int row) {
      int start = Platform.getInt(null, offsets + 4L * row);
      return UTF8String.fromAddress(null, texts + start, Platform.getInt(null, offsets + 4L * row + 4) - start);
    }
  }

  /** Numbers of eight bytes without nulls, read where they lie. */
  static class LentNumbers extends Lent {
    private final long numbers;

    LentNumbers(BaseFixedWidthVector vector) {
      super(vector);
      numbers = vector.getDataBuffer().memoryAddress();
    }

    public boolean isNullAt(int row) {
      return false;
    }

    public long getLong(int row) {
      return Platform.getLong(null, numbers + 8L * row);
    }

    public double getDouble(int row) {
      return Platform.getDouble(null, numbers + 8L * row);
    }
  }

  /** The batches of one task, one after the other. */
  public static class Columns implements PartitionReader {
    private final Iterator batches;
    private final UserDefinedPythonDataSource source;
    private final scala.collection.immutable.Map measured;
    private ColumnarBatch current;

    Columns(Iterator batches, UserDefinedPythonDataSource source, scala.collection.immutable.Map measured) {
      this.batches = batches;
      this.source = source;
      this.measured = measured;
    }

    public boolean next() {
      if (!batches.hasNext()) {
        return false;
      }
      ColumnarBatch outer = (ColumnarBatch) batches.next();
      StructVector rows = (StructVector) ((ArrowColumnVector) outer.column(0)).getValueVector();
      ColumnVector[] columns = new ColumnVector[rows.size()];
      for (int i = 0; i < columns.length; i++) {
        columns[i] = lent(rows.getVectorById(i));
      }
      current = new ColumnarBatch(columns, outer.numRows());
      return true;
    }

    public Object get() {
      return current;
    }

    public CustomTaskMetric[] currentMetricsValues() {
      java.util.Map values = new java.util.HashMap();
      java.util.Map metrics = scala.jdk.javaapi.CollectionConverters.asJava(measured);
      Object[] names = metrics.keySet().toArray();
      for (int i = 0; i < names.length; i++) {
        values.put(names[i], ((AccumulatorV2) metrics.get(names[i])).value());
      }
      return source.createPythonTaskMetrics(scala.collection.immutable.Map$.MODULE$.from(
          scala.jdk.javaapi.CollectionConverters.asScala(values)));
    }

    public void close() {}
  }
}

/**
 * The blocks that a task reads by itself. If that fails, Python reads them, from where it failed: it has the same blocks
 * in the same order, and says what is wrong if it cannot read them either.
 */
class Stored implements PartitionReader {
  static final byte[] MARK = new byte[] {'t', 'i', 'd', 'e', 'l', 'a', 'k', 'e', 0, 's', 't', 'o', 'r', 'e', 'd', 0};
  private final ColumnReader reader;
  private final InputPartition partition;
  private java.util.Iterator blocks;
  private PartitionReader instead = null;
  private ColumnarBatch current = null;
  private long given = 0;

  Stored(ColumnReader reader, InputPartition partition, java.util.Iterator blocks) {
    this.reader = reader;
    this.partition = partition;
    this.blocks = blocks;
  }

  /** Opens what Python described at the end of a split; null if it did not, or if there is no class to read it. */
  static java.util.Iterator blocks(String name, byte[] split, StructType schema) {
    int at = split.length - MARK.length - 4;
    while (at >= 0 && !isMarked(split, at)) {
      at--;
    }
    int start = at + MARK.length + 4;
    int length = at < 0 ? 0 : Platform.getInt(split, Platform.BYTE_ARRAY_OFFSET + (long) start - 4);
    if (length <= 0 || length > split.length - start) {
      return null;
    }
    try {
      Class found = Class.forName(name, true, Stored.class.getClassLoader());
      Object made = found.getDeclaredConstructor(new Class[0]).newInstance(new Object[0]);
      byte[] described = java.util.Arrays.copyOfRange(split, start, start + length);
      return (java.util.Iterator) ((java.util.function.BiFunction) made).apply(described, schema);
    } catch (Throwable error) {
      return null;  // slower, and just as right
    }
  }

  static boolean isMarked(byte[] split, int at) {
    for (int i = 0; i < MARK.length; i++) {
      if (split[at + i] != MARK[i]) {
        return false;
      }
    }
    return true;
  }

  public boolean next() throws java.io.IOException {
    if (instead == null) {
      try {
        boolean isMore = blocks.hasNext();
        current = isMore ? (ColumnarBatch) blocks.next() : null;
        given += isMore ? current.numRows() : 0;
        return isMore;
      } catch (Throwable error) {
        LoggerFactory.getLogger("tidelake").warn("Python reads what the JVM does not: {}", error.toString());
        begin();
      }
    }
    return instead.next();
  }

  /** Lets Python read, without what the JVM holds, and passes over the rows that were given. */
  private void begin() throws java.io.IOException {
    close();
    blocks = null;
    current = null;
    instead = reader.ofPython(partition);
    long passed = 0;
    while (passed < given && instead.next()) {
      passed += ((ColumnarBatch) instead.get()).numRows();
    }
    if (passed != given) {
      throw new IllegalStateException("tidelake: rows were read twice, and differently");
    }
  }

  public Object get() {
    return instead == null ? current : instead.get();
  }

  public CustomTaskMetric[] currentMetricsValues() {
    return instead == null ? new CustomTaskMetric[0] : instead.currentMetricsValues();
  }

  public void close() throws java.io.IOException {
    if (blocks != null) {
      ((java.io.Closeable) blocks).close();
    }
    if (instead != null) {
      instead.close();
    }
  }
}

/** A scan with a plan of its own, whose tasks hand over columns. */
class TableScan extends PythonScan {
  private final PythonDataSourceV2 source;
  private final String name;
  private final StructType schema;
  private final CaseInsensitiveStringMap given;
  private final String stored;

  TableScan(
      PythonDataSourceV2 source, String name, StructType schema, CaseInsensitiveStringMap given, Filter[] filters,
      String stored) {
    super(source, name, schema, given, filters);
    this.source = source;
    this.name = name;
    this.schema = schema;
    this.given = given;
    this.stored = stored;
  }

  public Scan$ColumnarSupportMode columnarSupportMode() {
    return Scan$ColumnarSupportMode.SUPPORTED;
  }

  public Batch toBatch() {
    return new TableBatch(source, name, schema, given, stored);
  }
}

class TableBatch extends PythonBatch {
  private final PythonDataSourceV2 source;
  private final String name;
  private final StructType schema;
  private final CaseInsensitiveStringMap options;
  private final String stored;
  private final scala.Option artifacts;
  private final scala.Option session;

  TableBatch(
      PythonDataSourceV2 source, String name, StructType schema, CaseInsensitiveStringMap options,
      String stored) {
    super(source, name, schema, options);
    this.stored = stored;
    this.source = source;
    this.name = name;
    this.schema = schema;
    this.options = options;
    this.artifacts = artifacts();
    this.session = session();
  }

  public PartitionReaderFactory createReaderFactory() {
    PythonDataSourceReadInfo info = source.getOrCreateReadInfo(name, options, schema, false);
    return new ColumnReader(source.source(), info.func(), schema, artifacts, session, stored);
  }

  /** Which files and packages of a session tasks have, as Spark's own batch finds it where it is made. */
  static scala.Option artifacts() {
    scala.Option state = JobArtifactSet$.MODULE$.getCurrentJobArtifactState();
    return state.isEmpty() ? state : scala.Option.apply(((JobArtifactState) state.get()).uuid());
  }

  /** The session that wants the log of its workers; none where no session does. */
  static scala.Option session() {
    scala.Option active = SparkSession$.MODULE$.getActiveSession();
    boolean isLogged = !active.isEmpty()
        && ((SparkSession) active.get()).sessionState().conf().getConfString(LOGGED, "false").equals("true");
    return isLogged ? scala.Option.apply(((SparkSession) active.get()).sessionUUID()) : scala.Option.empty();
  }

  static final String LOGGED = "spark.sql.pyspark.worker.logging.enabled";
}
