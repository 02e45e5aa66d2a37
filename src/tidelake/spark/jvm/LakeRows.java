package tidelake;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.BiFunction;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.connector.catalog.MetadataColumn;
import org.apache.spark.sql.connector.catalog.SupportsMetadataColumns;
import org.apache.spark.sql.connector.catalog.SupportsRowLevelOperations;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.write.BatchWrite;
import org.apache.spark.sql.connector.write.DeltaBatchWrite;
import org.apache.spark.sql.connector.write.DeltaWrite;
import org.apache.spark.sql.connector.write.DeltaWriteBuilder;
import org.apache.spark.sql.connector.write.DeltaWriterFactory;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.PhysicalWriteInfo;
import org.apache.spark.sql.connector.write.RowLevelOperation$Command;
import org.apache.spark.sql.connector.write.RowLevelOperation;
import org.apache.spark.sql.connector.write.RowLevelOperationBuilder;
import org.apache.spark.sql.connector.write.RowLevelOperationInfo;
import org.apache.spark.sql.connector.write.SupportsDelta;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * A table whose rows can be updated, deleted and merged. A row is known by its key, or else by its place in the snapshot
 * that the statement reads. Only rows that change are handed to Spark's tasks and back; Python commits them at once.
 */
public class LakeRows extends LakeTable implements SupportsRowLevelOperations, SupportsMetadataColumns {
  private static BiFunction tables = null;
  private static boolean hasLooked = false;

  public LakeRows(Door door, Map about) {
    super(door, about);
  }

  /** Takes what makes tables that say which columns a write may bring; null where this Spark does not ask. */
  static synchronized void evolveWith(BiFunction given) {
    hasLooked = true;
    tables = given;
  }

  /** A table, one that says which columns a write may bring where this Spark asks; see LakeEvolving. */
  static synchronized LakeRows of(Door door, Map about) {
    if (!hasLooked) {
      evolveWith(Door.optional("tidelake.LakeEvolving"));
    }
    try {
      return tables == null ? new LakeRows(door, about) : (LakeRows) tables.apply(door, about);
    } catch (Throwable error) {
      tables = null;  // Spark asks for all changes, and one that a table cannot have fails
      return new LakeRows(door, about);
    }
  }

  List key() {
    return (List) about.get("key");
  }

  public MetadataColumn[] metadataColumns() {
    return key().isEmpty() ? new MetadataColumn[] {new RowColumn()} : new MetadataColumn[0];
  }

  /** A data column of this name would be meant otherwise. */
  public boolean canRenameConflictingMetadataColumns() {
    return false;
  }

  public RowLevelOperationBuilder newRowLevelOperationBuilder(RowLevelOperationInfo info) {
    return new RowChange(this, info.command());
  }
}

class RowColumn implements MetadataColumn {
  public String name() {
    return LakeSource.ROW;
  }

  public DataType dataType() {
    return DataTypes.LongType;
  }

  public boolean isNullable() {
    return false;
  }

  public String comment() {
    return "which row of the snapshot it is";
  }
}

/** One statement that changes rows: it reads one snapshot, and its changes are of that. */
class RowChange implements RowLevelOperationBuilder, SupportsDelta {
  private final LakeRows table;
  private final RowLevelOperation$Command command;
  private LakeTable read = null;

  RowChange(LakeRows table, RowLevelOperation$Command command) {
    this.table = table;
    this.command = command;
  }

  public RowLevelOperation build() {
    return this;
  }

  public RowLevelOperation$Command command() {
    return command;
  }

  public String description() {
    return command.name() + " of " + table.name();
  }

  String operation() {
    return command.name().toLowerCase();
  }

  /** The table at the snapshot that is read, which is chosen when somebody reads. */
  synchronized LakeTable read() {
    if (read == null) {
      Map question = new HashMap();
      question.put("options", table.sourceOptions(new HashMap()));
      question.put("version", table.version());
      question.put("operation", operation());
      Map about = new HashMap(table.about);
      about.put("version", table.door.ask("change", question).get("version"));
      read = new LakeTable(table.door, about);
      read.isChanged = true;
    }
    return read;
  }

  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
    return read().newScanBuilder(options);
  }

  public NamedReference[] rowId() {
    List key = table.key();
    if (key.isEmpty()) {
      return new NamedReference[] {Expressions.column(LakeSource.ROW)};
    }
    NamedReference[] columns = new NamedReference[key.size()];
    for (int i = 0; i < columns.length; i++) {
      columns[i] = Expressions.column("`" + ((String) key.get(i)).replace("`", "``") + "`");
    }
    return columns;
  }

  public DeltaWriteBuilder newWriteBuilder(LogicalWriteInfo info) {
    Map options = table.sourceOptions(info.options().asCaseSensitiveMap());
    options.put("tidelakeChange", operation() + "@" + read().version());
    String[] batch = {"txnAppId", "txnVersion"};  // for which these statements have no place
    for (int i = 0; i < batch.length; i++) {
      String value = SparkContext.getOrCreate().getLocalProperty("tidelake." + batch[i]);
      if (value != null) {
        options.put(batch[i], value);
      }
    }
    return new RowChangeWrite(table, info, options);
  }
}

/** Writes the changes of one statement. */
class RowChangeWrite implements DeltaWriteBuilder, DeltaWrite, DeltaBatchWrite {
  private final LakeRows table;
  private final LogicalWriteInfo info;
  private final Map options;
  private BatchWrite inner = null;

  RowChangeWrite(LakeRows table, LogicalWriteInfo info, Map options) {
    this.table = table;
    this.info = info;
    this.options = options;
  }

  StructType ids() {
    return (StructType) info.rowIdSchema().get();
  }

  public DeltaWrite build() {
    return this;
  }

  public DeltaBatchWrite toBatch() {
    StructType whole = ChangedRows.schema(info.schema(), ids());
    inner = ((SupportsWrite) table.source(whole)).newWriteBuilder(new Placed(info, options, whole)).build().toBatch();
    return this;
  }

  public DeltaWriterFactory createBatchWriterFactory(PhysicalWriteInfo physical) {
    return new ChangedRows(inner.createBatchWriterFactory(physical), info.schema(), ids());
  }

  public void commit(WriterCommitMessage[] messages) {
    inner.commit(ChangedRows.Message.flat(messages));
  }

  public void abort(WriterCommitMessage[] messages) {
    inner.abort(ChangedRows.Message.flat(messages));
  }
}
