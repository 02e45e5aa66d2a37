package tidelake;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import java.util.Set;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.metric.CustomMetric;
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
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
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

/** Gathers what a query needs of a table. Spark checks the rows by its conditions again, so these only prune. */
class LakeScanBuilder implements SupportsPushDownV2Filters, SupportsPushDownRequiredColumns {
  final LakeSource table;
  final Map options;
  StructType columns;
  private Predicate[] pushed = new Predicate[0];

  LakeScanBuilder(LakeSource table, CaseInsensitiveStringMap given) {
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
    if (wanted.contains(LakeSource.ROW)) {
      kept = kept.add(LakeSource.ROW, DataTypes.LongType, false);
    }
    columns = kept.fields().length == 0 && least != null ? new StructType(new StructField[] {least}) : kept;
  }

  public Scan build() {
    return new LakeScan(table, columns, options);
  }
}

/** One scan of a table: its columns and its condition at its snapshot. */
class LakeScan implements SupportsReportStatistics {
  final LakeSource table;
  final StructType columns;
  private final Map given;
  private Scan inner = null;
  private Map counted = null;
  private boolean isStream = false;

  LakeScan(LakeSource table, StructType columns, Map given) {
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
    Scan scan = ((SupportsRead) LakeSource.source(python, columns)).newScanBuilder(own).build();
    try {
      Object[] parts = new Object[] {python, LakeSource.SOURCE, columns, own, new Filter[0]};
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
