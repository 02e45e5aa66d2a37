package tidelake;

import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.SupportsDynamicOverwrite;
import org.apache.spark.sql.connector.write.SupportsOverwriteV2;
import org.apache.spark.sql.connector.write.SupportsTruncate;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.internal.connector.SupportsStreamingUpdateAsAppend;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** Appends rows, or has them take the place of all others, of those that match, or of the buckets that they are in. */
class LakeWriteBuilder implements SupportsOverwriteV2, SupportsDynamicOverwrite {
  private final LakeSource table;
  private final LogicalWriteInfo info;
  private final Map options;
  private boolean isOverwrite = false;

  LakeWriteBuilder(LakeSource table, LogicalWriteInfo info) {
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
  LakeUpsertBuilder(LakeSource table, LogicalWriteInfo info) {
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
