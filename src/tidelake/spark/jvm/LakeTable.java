package tidelake;

import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.BiFunction;
import org.apache.spark.sql.connector.catalog.StagedTable;
import org.apache.spark.sql.connector.catalog.SupportsDeleteV2;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * A table of a lake, as Spark's catalogs have it. Who knows the lake is Python, which is asked through a door: a
 * question is a verb and JSON, and so is the answer. The rows come and go through Spark's own Python source, of which
 * each scan and each write gets one for itself, with the columns, the condition and the snapshot as options.
 */
public class LakeTable extends LakeSource implements SupportsRead, SupportsWrite, SupportsDeleteV2 {
  static final List KEEPING = Arrays.asList(new String[] {"replacewhere", "start", "end"});

  public LakeTable(Door door, Map about) {
    super(door, about);
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
