package tidelake;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.function.BiFunction;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.SortDirection;
import org.apache.spark.sql.connector.expressions.SortOrder;
import org.apache.spark.sql.connector.expressions.aggregate.AggregateFunc;
import org.apache.spark.sql.connector.expressions.aggregate.Aggregation;
import org.apache.spark.sql.connector.expressions.aggregate.Count;
import org.apache.spark.sql.connector.expressions.aggregate.CountStar;
import org.apache.spark.sql.connector.expressions.aggregate.Max;
import org.apache.spark.sql.connector.expressions.aggregate.Min;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomSumMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.SupportsPushDownAggregates;
import org.apache.spark.sql.connector.read.SupportsPushDownLimit;
import org.apache.spark.sql.connector.read.SupportsPushDownTopN;
import org.apache.spark.sql.connector.read.SupportsRuntimeV2Filtering;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * Scans that take more than columns and conditions: counts, minima and maxima that the catalog knows, a limit, the first
 * rows by time, and what a join finds out while it runs. All of it is optional, and what fails here is left to Spark.
 */
public class LakePushdown implements BiFunction {
  private static BiFunction paths = null;
  private static boolean hasLooked = false;

  /** Takes what makes builders that hear which paths a query uses; null where this Spark does not tell. */
  public void hearWith(BiFunction builders) {
    hasLooked = true;
    paths = builders;
  }

  public Object apply(Object table, Object options) {
    BiFunction builders = paths();
    try {
      if (builders != null) {
        return builders.apply(table, options);
      }
    } catch (Throwable error) {
      paths = null;  // columns are read whole
    }
    return new PushingBuilder((LakeSource) table, (CaseInsensitiveStringMap) options);
  }

  /** What makes builders that hear which paths a query uses, where this Spark tells; see LakePaths. */
  static synchronized BiFunction paths() {
    if (!hasLooked) {
      hasLooked = true;
      paths = Door.optional("tidelake.LakePaths");
    }
    return paths;
  }

  public static class ReadExtents extends CustomSumMetric {
    public String name() {
      return "readExtents";
    }

    public String description() {
      return "extents read";
    }
  }

  public static class PrunedExtents extends CustomSumMetric {
    public String name() {
      return "prunedExtents";
    }

    public String description() {
      return "extents pruned";
    }
  }

  public static class ReadBytes extends CustomSumMetric {
    public String name() {
      return "readBytes";
    }

    public String description() {
      return "stored bytes read";
    }
  }

  public static class PrunedBytes extends CustomSumMetric {
    public String name() {
      return "prunedBytes";
    }

    public String description() {
      return "stored bytes pruned";
    }
  }
}

class PushingBuilder extends LakeScanBuilder
    implements SupportsPushDownAggregates, SupportsPushDownLimit, SupportsPushDownTopN {
  private Map told = null;

  PushingBuilder(LakeSource table, CaseInsensitiveStringMap given) {
    super(table, given);
  }

  public boolean supportCompletePushDown(Aggregation aggregation) {
    return pushAggregation(aggregation);
  }

  /** Takes what the catalog can answer exactly, without a look at any extent. */
  public boolean pushAggregation(Aggregation aggregation) {
    if (aggregation.groupByExpressions().length > 0) {
      return false;
    }
    List functions = new ArrayList();
    AggregateFunc[] all = aggregation.aggregateExpressions();
    for (int i = 0; i < all.length; i++) {
      Map function = function(all[i]);
      if (function == null) {
        return false;
      }
      functions.add(function);
    }
    Map question = new HashMap();
    question.put("functions", functions);
    Map answer = ask("aggregate", question);
    told = answer != null && answer.containsKey("rows") ? answer : null;
    return told != null;
  }

  static Map function(AggregateFunc given) {
    if (given instanceof CountStar) {
      return function("count", null);
    }
    if (given instanceof Count && !((Count) given).isDistinct()) {
      return function("count", ((Count) given).column());
    }
    if (given instanceof Min) {
      return function("min", ((Min) given).column());
    }
    return given instanceof Max ? function("max", ((Max) given).column()) : null;
  }

  static Map function(String name, Expression of) {
    Map function = new HashMap();
    function.put("name", name);
    if (of instanceof NamedReference && ((NamedReference) of).fieldNames().length == 1) {
      function.put("column", ((NamedReference) of).fieldNames()[0]);
    } else if (of != null) {
      return null;
    }
    return function;
  }

  /** Reads no more than rows enough; Spark still takes so many of them. */
  public boolean pushLimit(int limit) {
    options.put("tidelakelimit", String.valueOf(limit));
    return true;
  }

  /** Reads from where there are rows enough that come first; Spark still sorts them. */
  public boolean pushTopN(SortOrder[] orders, int limit) {
    Map function = function("top", orders[0].expression());
    if (function == null || !function.containsKey("column")) {
      return false;
    }
    function.put("descending", Boolean.valueOf(orders[0].direction() == SortDirection.DESCENDING));
    function.put("limit", Integer.valueOf(limit));
    Map answer = ask("top", function);
    if (answer == null || answer.get("where") == null) {
      return false;
    }
    options.put("where", answer.get("where"));
    return true;
  }

  public boolean isPartiallyPushed() {
    return true;
  }

  Map ask(String verb, Map question) {
    try {
      question.put("options", table.readOptions(options));
      return table.door.ask(verb, question);
    } catch (RuntimeException error) {
      return null;  // whoever reads the rows says what is wrong
    }
  }

  public Scan build() {
    if (told != null) {
      return new ToldScan(told);
    }
    return table.isChanged ? new PlannedScan(table, columns, options) : new PushedScan(table, columns, options);
  }
}

/**
 * A scan that takes conditions while a query runs. One of a statement that changes rows is none: Spark would run the
 * statement's condition, or its join, a first time to find out which values its rows have, of every column.
 */
class PushedScan extends PlannedScan implements SupportsRuntimeV2Filtering {
  static final List COMPARED =
      Arrays.asList(new String[] {"int", "bigint", "string", "timestamp", "timestamp_ntz", "date", "boolean"});
  private final ThreadLocal found = new ThreadLocal();

  PushedScan(LakeSource table, StructType columns, Map given) {
    super(table, columns, given);
  }

  LakeScan like(Map options) {
    return new PushedScan(table, columns, options);
  }

  public NamedReference[] filterAttributes() {
    List compared = new ArrayList();
    StructField[] all = columns.fields();
    for (int i = 0; i < all.length; i++) {
      if (COMPARED.contains(all[i].dataType().simpleString()) && !all[i].name().equals(LakeSource.ROW)) {
        compared.add(Expressions.column("`" + all[i].name().replace("`", "``") + "`"));
      }
    }
    return (NamedReference[]) compared.toArray(new NamedReference[0]);
  }

  /** Takes what a join has found out, for the next batch of this thread alone: others may have this scan, too. */
  public void filter(Predicate[] predicates) {
    if (options().containsKey("tidelakelimit") || options().containsKey("tidelakefirst")) {
      return;  // rows enough of all, and not of those that a join wants
    }
    try {
      found.set(table.door.where(options(), predicates, false).get("where"));
    } catch (RuntimeException error) {
      found.remove();  // the join drops the rows itself
    }
  }

  public Batch toBatch() {
    if (found.get() == null) {
      return super.toBatch();
    }
    Map options = options();
    options.put("where", found.get());
    found.remove();
    plan = UUID.randomUUID().toString();
    return new LakeBatch(made(planned(options)).toBatch(), columns, options);
  }
}

/** A scan that tells what was pruned. */
class PlannedScan extends LakeScan {
  String plan = UUID.randomUUID().toString();

  PlannedScan(LakeSource table, StructType columns, Map given) {
    super(table, columns, given);
  }

  LakeScan like(Map options) {
    return new PlannedScan(table, columns, options);
  }

  Map planned(Map options) {
    Map named = new HashMap(options);
    named.put("tidelakeplan", plan);
    return named;
  }

  public CustomMetric[] supportedCustomMetrics() {
    List metrics = new ArrayList(Arrays.asList(super.supportedCustomMetrics()));
    metrics.add(new LakePushdown.ReadExtents());
    metrics.add(new LakePushdown.PrunedExtents());
    metrics.add(new LakePushdown.ReadBytes());
    metrics.add(new LakePushdown.PrunedBytes());
    return (CustomMetric[]) metrics.toArray(new CustomMetric[0]);
  }

  /** Tells the figures of the plan, where Python still has them. */
  public CustomTaskMetric[] reportDriverMetrics() {
    List metrics = new ArrayList();
    try {
      Map question = new HashMap();
      question.put("plan", plan);
      Map told = table.door.ask("planned", question);
      Object[] names = told.keySet().toArray();
      for (int i = 0; i < names.length; i++) {
        metrics.add(new Figure((String) names[i], ((Number) told.get(names[i])).longValue()));
      }
    } catch (RuntimeException error) {
      metrics.clear();  // nobody's answer depends on them
    }
    return (CustomTaskMetric[]) metrics.toArray(new CustomTaskMetric[0]);
  }
}

class Figure implements CustomTaskMetric {
  private final String name;
  private final long value;

  Figure(String name, long value) {
    this.name = name;
    this.value = value;
  }

  public String name() {
    return name;
  }

  public long value() {
    return value;
  }
}
