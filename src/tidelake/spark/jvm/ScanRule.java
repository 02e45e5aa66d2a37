package tidelake;

import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.UUID;
import java.util.WeakHashMap;
import java.util.function.BiFunction;
import java.util.function.Function;
import com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.spark.sql.catalyst.QueryPlanningTracker$;
import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.AttributeSet;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.AppendData;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.OverwriteByExpression;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.SupportsPushDownFilters;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.LogicalWriteInfoImpl;
import org.apache.spark.sql.execution.datasources.DataSourceStrategy$;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonScan;
import org.apache.spark.sql.execution.datasources.v2.python.PythonScanBuilder;
import org.apache.spark.sql.execution.datasources.v2.python.PythonWrite;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.internal.SQLConf$;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * Gives every scan of a Tidelake table a plan of its own: the filters right above it, and the columns that the query
 * uses. Spark's own pushdown keeps one plan for all scans of a frame, and pushes no columns to a Python source.
 *
 * All scans of one table in one execution of a query read one snapshot: the driver's Python is asked which, by the
 * name of the execution, and the answer becomes an option of the scan. Spark optimizes subqueries on their own; what
 * tracks an execution's planning is the same for all of its parts, so that is what an execution's name hangs on.
 */
public class ScanRule extends Rule {
  static final String NAME = "tidelake";
  static final String OWN_PLAN = "tidelakeownplan";
  static final List TIMES =
      java.util.Arrays.asList(new String[] {"asof", "timestampasof", "versionasof", "snapshot"});
  static final WeakHashMap QUERIES = new WeakHashMap();
  static final Map PLANNED = Collections.synchronizedMap(new WeakHashMap());  // scans that have a plan of their own
  private boolean hasWarned = false;
  private BiFunction pins = null;
  private Function columns = null;

  /** Takes what makes a scan's tasks hand over columns, where this Spark can have it. */
  public void setColumns(Function given) {
    columns = given;
  }

  /** Takes the function that gives the snapshot to read, of a query's name and a scan's options as JSON. */
  public void setPins(BiFunction given) {
    pins = given;
  }

  public TreeNode apply(TreeNode plan) {
    try {
      return visit((LogicalPlan) plan, queryName());
    } catch (Exception error) {
      warn(error);
    } catch (LinkageError error) {
      warn(error);
    }
    return plan;
  }

  /** Names the execution of a query that is being planned here. */
  static String queryName() {
    scala.Option tracker = QueryPlanningTracker$.MODULE$.get();
    String name = UUID.randomUUID().toString();
    if (tracker.isEmpty()) {
      return name;
    }
    synchronized (QUERIES) {
      if (!QUERIES.containsKey(tracker.get())) {
        QUERIES.put(tracker.get(), name);
      }
      return (String) QUERIES.get(tracker.get());
    }
  }

  /** Writes down in a scan's options which snapshot it reads; where nobody can say, the reader says what is wrong. */
  void pin(Map options, String query) {
    if (pins == null) {
      return;
    }
    try {
      Object snapshot = pins.apply(query, new ObjectMapper().writeValueAsString(options));
      if (snapshot != null) {
        Object[] names = options.keySet().toArray();
        for (int i = 0; i < names.length; i++) {
          if (TIMES.contains(((String) names[i]).toLowerCase())) {
            options.remove(names[i]);
          }
        }
        options.put("snapshot", snapshot);
      }
    } catch (java.io.IOException error) {
      throw new RuntimeException(error);
    }
  }

  LogicalPlan visit(LogicalPlan plan, String query) {
    if (plan instanceof Project) {
      LogicalPlan below = (LogicalPlan) ((Project) plan).child();
      if (isOurs(below)) {
        return with(plan, planned(below, plan.references(), null, query));
      }
      if (below instanceof Filter && isOurs((LogicalPlan) ((Filter) below).child())) {
        AttributeSet needed = plan.references().$plus$plus(below.references());
        LogicalPlan scan = planned(
            (LogicalPlan) ((Filter) below).child(), needed, ((Filter) below).condition(), query);
        return with(plan, with(below, scan));
      }
    }
    if (plan instanceof Filter && isOurs((LogicalPlan) ((Filter) plan).child())) {
      return with(plan, planned((LogicalPlan) ((Filter) plan).child(), null, ((Filter) plan).condition(), query));
    }
    if (isOurs(plan)) {
      return planned(plan, null, null, query);
    }
    if (plan instanceof AppendData) {
      plan = placed((AppendData) plan);
    } else if (plan instanceof OverwriteByExpression) {
      plan = placed((OverwriteByExpression) plan);
    }
    return (LogicalPlan) plan.mapChildren(new Visit(this, query));
  }

  static LogicalPlan with(LogicalPlan plan, LogicalPlan child) {
    List children = new ArrayList();
    children.add(child);
    return (LogicalPlan) plan.withNewChildren(seq(children));
  }

  /** A plan with one of its parts in another's place, however many parts it has on this Spark. */
  static LogicalPlan with(LogicalPlan plan, Object part, Object other) {
    Object[] parts = new Object[plan.productArity()];
    for (int i = 0; i < parts.length; i++) {
      Object each = plan.productElement(i);
      parts[i] = each == part ? other : each;
    }
    return (LogicalPlan) plan.makeCopy(parts);
  }

  static scala.collection.immutable.Seq seq(List list) {
    return scala.jdk.javaapi.CollectionConverters.asScala(list).toList();
  }

  static boolean isOurs(LogicalPlan plan) {
    if (!(plan instanceof DataSourceV2ScanRelation)) {
      return false;
    }
    Scan scan = ((DataSourceV2ScanRelation) plan).scan();
    return scan.getClass() == PythonScan.class && isOurs(((DataSourceV2ScanRelation) plan).relation())
        && !PLANNED.containsKey(scan);
  }

  /** Spark's table of a Python source has the name of the source. */
  static boolean isOurs(DataSourceV2Relation relation) {
    return NAME.equalsIgnoreCase(relation.table().name());
  }

  LogicalPlan planned(LogicalPlan plan, AttributeSet needed, Expression condition, String query) {
    DataSourceV2ScanRelation relation = (DataSourceV2ScanRelation) plan;
    Map options = placedOptions(relation.relation().options(), relation.relation());
    pin(options, query);
    options.put(OWN_PLAN, "1");
    CaseInsensitiveStringMap own = new CaseInsensitiveStringMap(options);
    StructType whole = relation.scan().readSchema();
    StructType schema = new StructType();
    List output = new ArrayList();
    List all = scala.jdk.javaapi.CollectionConverters.asJava(relation.output());
    AttributeReference least = null;
    for (int i = 0; i < all.size(); i++) {
      AttributeReference attribute = (AttributeReference) all.get(i);
      if (needed == null || needed.contains(attribute)) {
        output.add(attribute);
        schema = schema.add(whole.apply(attribute.name()));
      } else if (least == null || attribute.dataType().defaultSize() < least.dataType().defaultSize()) {
        least = attribute;
      }
    }
    if (output.isEmpty()) {
      output.add(least);
      schema = schema.add(whole.apply(least.name()));
    }
    PythonDataSourceV2 source = new PythonDataSourceV2();
    source.setShortName(NAME);
    PythonScanBuilder builder = new PythonScanBuilder(source, NAME, schema, own);
    Object taking = builder;  // of filters, since Spark 4.1
    if (condition != null && taking instanceof SupportsPushDownFilters) {
      List filters = new ArrayList();
      translate(condition, filters);
      if (!filters.isEmpty()) {
        SQLConf$.MODULE$.withExistingConf(pushing(), new Push((SupportsPushDownFilters) taking, filters));
      }
    }
    org.apache.spark.sql.sources.Filter[] taken = taking instanceof SupportsPushDownFilters
        ? ((SupportsPushDownFilters) taking).pushedFilters() : new org.apache.spark.sql.sources.Filter[0];
    Scan scan = scan(builder, new Object[] {source, NAME, schema, own, taken});
    return with(with(relation, relation.scan(), scan), relation.output(), seq(output));
  }

  /** Spark does not pass the options of a table that SQL created on to its scans and writes; the catalog has them. */
  static Map placedOptions(CaseInsensitiveStringMap given, DataSourceV2Relation relation) {
    Map options = new HashMap(given.asCaseSensitiveMap());
    if (given.containsKey("table") || relation.identifier().isEmpty()) {
      return options;
    }
    Identifier id = (Identifier) relation.identifier().get();
    scala.Option database = id.namespace().length == 0 ? scala.Option.empty() : scala.Option.apply(id.namespace()[0]);
    try {
      Map held = scala.jdk.javaapi.CollectionConverters.asJava(
          SparkSession.active().sessionState().catalog()
              .getTableMetadata(new TableIdentifier(id.name(), database)).storage().properties());
      Object[] names = held.keySet().toArray();
      for (int i = 0; i < names.length; i++) {
        if (!given.containsKey((String) names[i])) {
          options.put(names[i], held.get(names[i]));
        }
      }
    } catch (Exception error) {
      return options;  // a table of another catalog: whoever reads it says what is missing
    }
    return options;
  }

  static LogicalPlan placed(AppendData append) {
    PythonWrite owned = placedWrite(append, append.write(), append.writeOptions(), append.query(), false);
    return owned == null ? append : with(append, append.write(), scala.Option.apply(owned));
  }

  static LogicalPlan placed(OverwriteByExpression overwrite) {
    PythonWrite owned =
        placedWrite(overwrite, overwrite.write(), overwrite.writeOptions(), overwrite.query(), true);
    return owned == null ? overwrite : with(overwrite, overwrite.write(), scala.Option.apply(owned));
  }

  /** Returns a write of ours with the options of its table, which comes first; null if it is not ours or has them. */
  static PythonWrite placedWrite(
      LogicalPlan plan, scala.Option write, scala.collection.immutable.Map given, LogicalPlan query,
      boolean isTruncate) {
    Object table = plan.productElement(0);
    if (write.isEmpty() || !(write.get() instanceof PythonWrite) || !(table instanceof DataSourceV2Relation)
        || !isOurs((DataSourceV2Relation) table)) {
      return null;
    }
    Map told = new HashMap(((DataSourceV2Relation) table).options().asCaseSensitiveMap());
    told.putAll(scala.jdk.javaapi.CollectionConverters.asJava(given));
    CaseInsensitiveStringMap options = new CaseInsensitiveStringMap(told);
    if (options.containsKey("table")) {
      return null;
    }
    options = new CaseInsensitiveStringMap(placedOptions(options, (DataSourceV2Relation) table));
    if (!options.containsKey("table")) {
      return null;
    }
    LogicalWriteInfo own = new LogicalWriteInfoImpl(
        UUID.randomUUID().toString(), query.schema(), options, Optional.empty(), Optional.empty());
    PythonDataSourceV2 source = new PythonDataSourceV2();
    source.setShortName(NAME);
    return new PythonWrite(source, NAME, own, isTruncate);
  }

  /** This session's settings with filter pushdown on: for our scans alone, whatever other sources are told. */
  SQLConf pushing() {
    SQLConf own = conf().clone();
    own.setConfString("spark.sql.python.filterPushdown.enabled", "true");
    return own;
  }

  Scan scan(PythonScanBuilder builder, Object[] parts) {
    Scan built = builder.build();
    PLANNED.put(built, NAME);
    return columns == null ? built : (Scan) columns.apply(parts);
  }

  /** Says once that this Spark is not as expected; what is returned unchanged is read whole, and Spark filters it. */
  void warn(Throwable error) {
    if (!hasWarned) {
      hasWarned = true;
      System.err.println("tidelake: filters and columns are not pushed down here: " + error);
    }
  }

  static void translate(Expression condition, List filters) {
    if (condition instanceof And) {
      translate((Expression) ((And) condition).left(), filters);
      translate((Expression) ((And) condition).right(), filters);
      return;
    }
    scala.Option filter = DataSourceStrategy$.MODULE$.translateFilter(condition, true);
    if (filter.isDefined()) {
      filters.add(filter.get());
    }
  }
}

class Push extends scala.runtime.AbstractFunction0 {
  private final SupportsPushDownFilters builder;
  private final List filters;

  Push(SupportsPushDownFilters builder, List filters) {
    this.builder = builder;
    this.filters = filters;
  }

  public Object apply() {
    org.apache.spark.sql.sources.Filter[] pushed = new org.apache.spark.sql.sources.Filter[filters.size()];
    for (int i = 0; i < pushed.length; i++) {
      pushed[i] = (org.apache.spark.sql.sources.Filter) filters.get(i);
    }
    return builder.pushFilters(pushed);
  }
}

class Visit extends scala.runtime.AbstractFunction1 {
  private final ScanRule rule;
  private final String query;

  Visit(ScanRule rule, String query) {
    this.rule = rule;
    this.query = query;
  }

  public Object apply(Object plan) {
    return rule.visit((LogicalPlan) plan, query);
  }
}
