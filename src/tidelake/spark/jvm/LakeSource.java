package tidelake;

import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;

/**
 * A table of a lake, as Python told of it: its name, its columns and its snapshot, and how Spark's own Python source is
 * told of it again, of which each scan and each write gets one for itself. It does not read or write.
 */
public class LakeSource {
  public static final String SOURCE = "tidelake";
  public static final String ROW = "_tidelake_row";  // which row of a snapshot each is, of a table without a key
  static final List TIMES = Arrays.asList(new String[] {"asof", "snapshot", "user", "users"});
  static final List SPARKS_TIMES = Arrays.asList(new String[] {"timestampasof", "versionasof"});
  final Door door;
  final Map about;
  private final StructType schema;
  boolean isChanged = false;  // whether the statement that reads it changes its rows

  LakeSource(Door door, Map about) {
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
}
