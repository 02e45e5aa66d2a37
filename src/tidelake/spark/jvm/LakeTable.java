package tidelake;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import java.util.Set;
import java.util.function.BiFunction;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.catalog.StagedTable;
import org.apache.spark.sql.connector.catalog.SupportsDeleteV2;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.LocalScan;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan$ColumnarSupportMode;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.Statistics;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.connector.read.SupportsPushDownV2Filters;
import org.apache.spark.sql.connector.read.SupportsReportStatistics;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.SupportsDynamicOverwrite;
import org.apache.spark.sql.connector.write.SupportsOverwriteV2;
import org.apache.spark.sql.connector.write.SupportsTruncate;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.internal.connector.SupportsStreamingUpdateAsAppend;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * A table of a lake, as Spark's catalogs have it. Who knows the lake is Python, which is asked through a door: a
 * question is a verb and JSON, and so is the answer. The rows come and go through Spark's own Python source, of which
 * each scan and each write gets one for itself, with the columns, the condition and the snapshot as options.
 */
public class LakeTable implements SupportsRead, SupportsWrite, SupportsDeleteV2 {
  static final String SOURCE = "tidelake";
  public static final String ROW = "_tidelake_row";  // which row of a snapshot each is, of a table without a key
  static final List TIMES = Arrays.asList(new String[] {"asof", "snapshot", "user", "users"});
  static final List SPARKS_TIMES = Arrays.asList(new String[] {"timestampasof", "versionasof"});
  static final List KEEPING = Arrays.asList(new String[] {"replacewhere", "start", "end"});
  final Door door;
  final Map about;
  private final StructType schema;
  boolean isChanged = false;  // whether the statement that reads it changes its rows

  public LakeTable(Door door, Map about) {
    this.door = door;
    this.about = about;
    this.schema = (StructType) DataType.fromJson((String) about.get("schema"));
  }

  public String name() {
    return door.catalog() + "." + about.get("name");
  }

  /** As Spark's own errors name it. */
  public String toString() {
    return name();
  }

  public String id() {
    return (String) about.get("id");
  }

  /** A table that has a version is loaded anew when a frame is executed, and its scans then read one snapshot. */
  public String version() {
    return (String) about.get("version");
  }

  public StructType schema() {
    return schema;
  }

  public Map properties() {
    return (Map) about.get("properties");
  }

  public Set capabilities() {
    Set found = new HashSet(Arrays.asList(new Object[] {
        TableCapability.BATCH_READ, TableCapability.MICRO_BATCH_READ, TableCapability.BATCH_WRITE,
        TableCapability.STREAMING_WRITE, TableCapability.TRUNCATE, TableCapability.OVERWRITE_BY_FILTER,
        TableCapability.OVERWRITE_DYNAMIC}));
    TableCapability[] all = TableCapability.values();
    for (int i = 0; i < all.length; i++) {
      if (all[i].name().equals("AUTOMATIC_SCHEMA_EVOLUTION")) {  // which not every Spark has
        found.add(all[i]);
      }
    }
    return found;
  }

  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
    BiFunction builders = Door.builders();
    try {
      return builders == null ? new LakeScanBuilder(this, options) : (ScanBuilder) builders.apply(this, options);
    } catch (Throwable error) {
      Door.builders = null;  // less is pushed down: slower, and just as right
      return new LakeScanBuilder(this, options);
    }
  }

  public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
    List key = (List) about.get("key");
    return key == null || key.isEmpty() ? new LakeWriteBuilder(this, info) : new LakeUpsertBuilder(this, info);
  }

  public boolean canDeleteWhere(Predicate[] predicates) {
    return door.where(sourceOptions(new HashMap()), predicates, true).get("where") != null;
  }

  public void deleteWhere(Predicate[] predicates) {
    Map question = new HashMap();
    question.put("options", sourceOptions(new HashMap()));
    question.put("predicates", Trees.of(predicates));
    door.ask("delete", question);
  }

  public boolean truncateTable() {
    deleteWhere(new Predicate[0]);
    return true;
  }

  /** What names this table to Spark's Python source, with what somebody gave besides. */
  Map sourceOptions(Map given) {
    Map options = new HashMap((Map) about.get("options"));
    options.putAll(given);
    return options;
  }

  /**
   * The same, at the snapshot that was loaded, unless somebody names a time or another user. The options that Spark
   * itself knows chose what was loaded, by the session's time zone.
   */
  public Map readOptions(Map given) {
    Map options = sourceOptions(given);
    Object[] names = given.keySet().toArray();
    for (int i = 0; i < names.length; i++) {
      if (SPARKS_TIMES.contains(((String) names[i]).toLowerCase())) {
        options.remove(names[i]);
      }
    }
    for (int i = 0; i < names.length; i++) {
      if (TIMES.contains(((String) names[i]).toLowerCase())) {
        return options;
      }
    }
    options.put("snapshot", version());
    return options;
  }

  /** Spark's own table of a Python source, made for one scan or one write. */
  Table source(StructType columns) {
    return source(python(), columns);
  }

  static Table source(PythonDataSourceV2 python, StructType columns) {
    return ((TableProvider) python).getTable(columns, new Transform[0], new HashMap());
  }

  PythonDataSourceV2 python() {
    if (Door.answers == null) {
      Door.companion().apply("register", door.ask("source", new HashMap()));
    }
    PythonDataSourceV2 source = new PythonDataSourceV2();
    source.setShortName(SOURCE);
    return source;
  }

  /** A table that gets its name when its rows are in. */
  public static class Staged extends LakeTable implements StagedTable {
    public Staged(Door door, Map about) {
      super(door, about);
    }

    /** Refuses what would mean that rows of the table that is replaced stay; of the columns none does. */
    public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
      if ("dynamic".equalsIgnoreCase(info.options().get("partitionOverwriteMode"))) {
        throw new Refused("bad_option", "this write makes the table anew, and partitionOverwriteMode=dynamic keeps rows:"
            + " use writeTo(...).overwritePartitions(), or leave the option out");
      }
      Map options = new HashMap(info.options().asCaseSensitiveMap());
      Object[] names = options.keySet().toArray();
      for (int i = 0; i < names.length; i++) {
        String name = ((String) names[i]).toLowerCase();
        if (KEEPING.contains(name)) {
          throw new Refused("bad_option", "tidelake: this write makes the table anew, and " + names[i] + " keeps rows:"
              + " use writeTo(...).overwrite(condition) or INSERT INTO ... REPLACE WHERE, or leave the option out");
        }
        if (name.equals("overwriteschema") && "true".equalsIgnoreCase((String) options.get(names[i]))) {
          options.remove(names[i]);
        }
      }
      return super.newWriteBuilder(new Placed(info, options));
    }

    public void commitStagedChanges() {
      door.ask("publish", about);
    }

    public void abortStagedChanges() {
      door.ask("discard", about);
    }

    public CustomTaskMetric[] reportDriverMetrics() {
      return new CustomTaskMetric[0];
    }
  }

  /** Rows that Python tells of a table: its history, its extents. */
  public static class Told implements SupportsRead {
    private final Door door;
    private final Map about;

    public Told(Door door, Map about) {
      this.door = door;
      this.about = about;
    }

    public String name() {
      return door.catalog() + "." + about.get("name");
    }

    public StructType schema() {
      return (StructType) DataType.fromJson((String) about.get("schema"));
    }

    public Set capabilities() {
      return new HashSet(Arrays.asList(new Object[] {TableCapability.BATCH_READ}));
    }

    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
      return new ToldScan(door.ask("told", about));
    }
  }
}

/** Gathers what a query needs of a table. Spark checks the rows by its conditions again, so these only prune. */
class LakeScanBuilder implements SupportsPushDownV2Filters, SupportsPushDownRequiredColumns {
  final LakeTable table;
  final Map options;
  StructType columns;
  private Predicate[] pushed = new Predicate[0];

  LakeScanBuilder(LakeTable table, CaseInsensitiveStringMap given) {
    this.table = table;
    this.options = new HashMap(given.asCaseSensitiveMap());
    this.columns = table.schema();
  }

  public Predicate[] pushPredicates(Predicate[] predicates) {
    Map told = table.door.where(table.readOptions(options), predicates, false);
    List taken = new ArrayList();
    List is = (List) told.get("taken");
    for (int i = 0; i < predicates.length; i++) {
      if (((Boolean) is.get(i)).booleanValue()) {
        taken.add(predicates[i]);
      }
    }
    pushed = (Predicate[]) taken.toArray(new Predicate[0]);
    if (!taken.isEmpty()) {
      options.put("where", told.get("where"));
    }
    return predicates;
  }

  public Predicate[] pushedPredicates() {
    return pushed;
  }

  /** Takes columns whole; of none, one is read that is small. */
  public void pruneColumns(StructType required) {
    StructField[] all = table.schema().fields();
    Set wanted = new HashSet(Arrays.asList(required.fieldNames()));
    StructType kept = new StructType();
    StructField least = null;
    for (int i = 0; i < all.length; i++) {
      if (wanted.contains(all[i].name())) {
        kept = kept.add(all[i]);
      }
      if (least == null || all[i].dataType().defaultSize() < least.dataType().defaultSize()) {
        least = all[i];
      }
    }
    if (wanted.contains(LakeTable.ROW)) {
      kept = kept.add(LakeTable.ROW, DataTypes.LongType, false);
    }
    columns = kept.fields().length == 0 && least != null ? new StructType(new StructField[] {least}) : kept;
  }

  public Scan build() {
    return new LakeScan(table, columns, options);
  }
}

/** One scan of a table: its columns and its condition at its snapshot. */
class LakeScan implements SupportsReportStatistics {
  final LakeTable table;
  final StructType columns;
  private final Map given;
  private Scan inner = null;
  private Map counted = null;
  private boolean isStream = false;

  LakeScan(LakeTable table, StructType columns, Map given) {
    this.table = table;
    this.columns = columns;
    this.given = given;
  }

  /** For those who explain a plan. */
  public Map options() {
    return table.readOptions(given);
  }

  /** The same scan with more options. */
  LakeScan with(Map more) {
    Map all = new HashMap(given);
    all.putAll(more);
    return like(all);
  }

  LakeScan like(Map options) {
    return new LakeScan(table, columns, options);
  }

  /** Takes an option, or takes it away, if nobody has planned the scan yet. */
  void set(String name, String value) {
    if (inner == null && value == null) {
      given.remove(name);
    } else if (inner == null) {
      given.put(name, value);
    }
  }

  public StructType readSchema() {
    return columns;
  }

  public String description() {
    Object where = given.get("where");
    Object limit = given.get("tidelakelimit");
    Object first = given.get("tidelakefirst");
    return table.name() + " at snapshot " + table.version() + (where == null ? "" : " where " + where)
        + (first == null ? "" : " " + first) + (limit == null ? "" : " limit " + limit);
  }

  /** Spark's own scan of the Python source, with columns instead of rows where that can be had. */
  Scan inner() {
    if (inner == null) {
      inner = made(planned(options()));
    }
    return inner;
  }

  Scan made(Map options) {
    PythonDataSourceV2 python = table.python();
    CaseInsensitiveStringMap own = new CaseInsensitiveStringMap(options);
    Scan scan = ((SupportsRead) LakeTable.source(python, columns)).newScanBuilder(own).build();
    try {
      Object[] parts = new Object[] {python, LakeTable.SOURCE, columns, own, new Filter[0]};
      return Door.columns == null ? scan : (Scan) Door.columns.apply(parts);
    } catch (Throwable error) {
      Door.columns = null;  // rows come one by one: slower, and just as right
      return scan;
    }
  }

  /** Options by which the plan can be found again; scans that differ in them alone are the same. */
  Map planned(Map options) {
    return options;
  }

  Scan source(Map options) {
    return ((SupportsRead) table.source(columns))
        .newScanBuilder(new CaseInsensitiveStringMap(options)).build();
  }

  public Batch toBatch() {
    return new LakeBatch(inner().toBatch(), columns, options());
  }

  public MicroBatchStream toMicroBatchStream(String checkpoint) {
    isStream = true;
    return source(table.sourceOptions(given)).toMicroBatchStream(checkpoint);
  }

  public Scan$ColumnarSupportMode columnarSupportMode() {
    return isStream ? Scan$ColumnarSupportMode.UNSUPPORTED : inner().columnarSupportMode();
  }

  public CustomMetric[] supportedCustomMetrics() {
    return inner().supportedCustomMetrics();
  }

  /** Counts what the catalog knows to be left after pruning, without a look at any object. */
  public Statistics estimateStatistics() {
    if (counted == null) {
      Map question = new HashMap();
      question.put("options", options());
      question.put("columns", columns.fieldNames());
      try {
        counted = table.door.ask("statistics", question);
      } catch (RuntimeException error) {
        return new Unknown();  // whoever reads the rows says what is wrong
      }
    }
    long rows = ((Number) counted.get("rows")).longValue();
    long width = 8L + columns.defaultSize();
    return new Counted(rows, Math.max(rows * width, ((Number) counted.get("bytes")).longValue()));
  }
}

class Unknown implements Statistics {
  public OptionalLong sizeInBytes() {
    return OptionalLong.empty();
  }

  public OptionalLong numRows() {
    return OptionalLong.empty();
  }
}

class Counted implements Statistics {
  private final long rows;
  private final long bytes;

  Counted(long rows, long bytes) {
    this.rows = rows;
    this.bytes = bytes;
  }

  public OptionalLong sizeInBytes() {
    return OptionalLong.of(bytes);
  }

  public OptionalLong numRows() {
    return OptionalLong.of(rows);
  }
}

/** The tasks of a scan. Two that read the same are equal, so that Spark may run one for both. */
class LakeBatch implements Batch {
  private final Batch inner;
  private final List same;

  LakeBatch(Batch inner, StructType columns, Map options) {
    this.inner = inner;
    this.same = Arrays.asList(new Object[] {columns, options});
  }

  public InputPartition[] planInputPartitions() {
    return inner.planInputPartitions();
  }

  public PartitionReaderFactory createReaderFactory() {
    return inner.createReaderFactory();
  }

  public boolean equals(Object other) {
    return other instanceof LakeBatch && same.equals(((LakeBatch) other).same);
  }

  public int hashCode() {
    return same.hashCode();
  }
}

/** Appends rows, or has them take the place of all others, of those that match, or of the buckets that they are in. */
class LakeWriteBuilder implements SupportsOverwriteV2, SupportsDynamicOverwrite {
  private final LakeTable table;
  private final LogicalWriteInfo info;
  private final Map options;
  private boolean isOverwrite = false;

  LakeWriteBuilder(LakeTable table, LogicalWriteInfo info) {
    this.table = table;
    this.info = info;
    this.options = table.sourceOptions(info.options().asCaseSensitiveMap());
  }

  public WriteBuilder truncate() {
    isOverwrite = true;
    return this;
  }

  public boolean canOverwrite(Predicate[] predicates) {
    if (table.door.where(table.sourceOptions(new HashMap()), predicates, true).get("where") == null) {
      throw new Refused("bad_condition", "tidelake: rows are overwritten by conditions that compare columns with values,"
          + " joined by AND, OR and NOT: DELETE those rows and INSERT the others, or MERGE");
    }
    return true;
  }

  public WriteBuilder overwrite(Predicate[] predicates) {
    isOverwrite = true;
    Object where = table.door.where(table.sourceOptions(new HashMap()), predicates, true).get("where");
    if (!"".equals(where)) {
      options.put("replaceWhere", where);
    }
    return this;
  }

  public WriteBuilder overwriteDynamicPartitions() {
    isOverwrite = true;
    Object[] names = options.keySet().toArray();
    for (int i = 0; i < names.length; i++) {
      if (((String) names[i]).equalsIgnoreCase("partitionOverwriteMode")) {
        options.remove(names[i]);
      }
    }
    options.put("partitionOverwriteMode", "dynamic");
    return this;
  }

  public Write build() {
    WriteBuilder inner =
        ((SupportsWrite) table.source(info.schema())).newWriteBuilder(new Placed(info, options));
    return (isOverwrite ? ((SupportsTruncate) inner).truncate() : inner).build();
  }
}

/** Takes a stream in update mode, too: of a table with a key, a newer row takes the place of the older. */
class LakeUpsertBuilder extends LakeWriteBuilder implements SupportsStreamingUpdateAsAppend {
  LakeUpsertBuilder(LakeTable table, LogicalWriteInfo info) {
    super(table, info);
  }
}

/** What Spark says of a write, with the options that name its table. */
class Placed implements LogicalWriteInfo {
  private final LogicalWriteInfo info;
  private final CaseInsensitiveStringMap options;
  private final StructType schema;

  Placed(LogicalWriteInfo info, Map options) {
    this(info, options, info.schema());
  }

  Placed(LogicalWriteInfo info, Map options, StructType schema) {
    this.info = info;
    this.schema = schema;
    this.options = new CaseInsensitiveStringMap(options);
  }

  public CaseInsensitiveStringMap options() {
    return options;
  }

  public String queryId() {
    return info.queryId();
  }

  public StructType schema() {
    return schema;
  }
}

/** Few rows that are there already. */
class ToldScan implements ScanBuilder, LocalScan {
  private final StructType schema;
  private final InternalRow[] rows;

  ToldScan(Map told) {
    schema = (StructType) DataType.fromJson((String) told.get("schema"));
    List given = (List) told.get("rows");
    rows = new InternalRow[given.size()];
    for (int i = 0; i < rows.length; i++) {
      Object[] values = ((List) given.get(i)).toArray();
      for (int j = 0; j < values.length; j++) {
        values[j] = value(values[j], schema.fields()[j].dataType());
      }
      rows[i] = new GenericInternalRow(values);
    }
  }

  static Object value(Object given, DataType type) {
    if (given == null || type instanceof BooleanType) {
      return given;
    }
    if (type instanceof StringType) {
      return UTF8String.fromString(given.toString());
    }
    if (type instanceof DoubleType) {
      return Double.valueOf(((Number) given).doubleValue());
    }
    if (type instanceof IntegerType || type instanceof DateType) {
      return Integer.valueOf(((Number) given).intValue());
    }
    return Long.valueOf(((Number) given).longValue());
  }

  public Scan build() {
    return this;
  }

  public StructType readSchema() {
    return schema;
  }

  public InternalRow[] rows() {
    return rows;
  }
}
