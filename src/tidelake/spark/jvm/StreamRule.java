package tidelake;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.CurrentBatchTimestamp;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal$;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.execution.datasources.DataSourceStrategy$;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Strategy$;
import org.apache.spark.sql.execution.datasources.v2.StreamingDataSourceV2ScanRelation;
import org.apache.spark.sql.execution.datasources.v2.python.PythonStreamingSourceOffset;

/**
 * Has each batch of a stream prune by the conditions above it, which Spark pushes to no stream. They travel in the offset
 * at which the batch's plan ends: that of the plan alone, so that no checkpoint knows them, and a query that goes on with
 * others is right. Spark asks them again of each row.
 */
public class StreamRule extends Rule {
  static final String SOURCE = "tidelake";
  static final String PREDICATES = "predicates";  // what an offset has besides what the stream wrote
  private static final ObjectMapper JSON = new ObjectMapper();
  private boolean hasWarned = false;

  public TreeNode apply(TreeNode plan) {
    try {
      return ((LogicalPlan) plan).isStreaming() ? visit((LogicalPlan) plan, new ArrayList()) : plan;
    } catch (Throwable error) {  // one clause: Janino's stack maps of two that go on together are wrong
      warn(error);
      return plan;
    }
  }

  /** Says once that this Spark is not as expected; what is returned unchanged is read whole, and Spark filters it. */
  void warn(Throwable error) {
    if (!hasWarned) {
      hasWarned = true;
      System.err.println("tidelake: conditions above streams do not prune here: " + error);
    }
  }

  /** Visits a part of a plan with the conditions that all rows of it must satisfy to come any further. */
  LogicalPlan visit(LogicalPlan plan, List conditions) {
    if (plan instanceof StreamingDataSourceV2ScanRelation) {
      return pruned((StreamingDataSourceV2ScanRelation) plan, conditions);
    }
    List own = new ArrayList();
    if (plan instanceof Filter) {
      own.addAll(conditions);
      Trees.part(((Filter) plan).condition(), own);
    } else if (plan instanceof Project) {
      own.addAll(conditions);  // those of columns that it makes are of none of the table
    }
    return (LogicalPlan) plan.mapChildren(new VisitStreams(this, own));
  }

  LogicalPlan pruned(StreamingDataSourceV2ScanRelation scan, List conditions) {
    Table table = scan.relation().table();
    boolean isOurs = SOURCE.equalsIgnoreCase(table.name()) || table.getClass().getName().startsWith("tidelake.");
    if (!isOurs || conditions.isEmpty() || scan.endOffset().isEmpty()
        || !(scan.endOffset().get() instanceof PythonStreamingSourceOffset)) {
      return scan;
    }
    List trees = trees(scan, conditions);
    try {
      Map end = (Map) JSON.readValue(((PythonStreamingSourceOffset) scan.endOffset().get()).json(), Map.class);
      if (trees.isEmpty() || end.containsKey(PREDICATES)) {
        return scan;
      }
      end.put(PREDICATES, trees);
      PythonStreamingSourceOffset told = new PythonStreamingSourceOffset(JSON.writeValueAsString(end));
      return scan.copy(
          scan.relation(), scan.scan(), scan.output(), scan.stream(), scan.startOffset(), scala.Option.apply(told));
    } catch (IOException error) {
      throw new RuntimeException(error);
    }
  }

  /** Those of some conditions that are of the scan's columns and that Spark can say to a source. */
  static List trees(StreamingDataSourceV2ScanRelation scan, List conditions) {
    List own = new ArrayList();
    for (int i = 0; i < conditions.size(); i++) {
      Expression each = (Expression) conditions.get(i);
      if (each.references().subsetOf(scan.outputSet())) {
        own.add(folded(each));
      }
    }
    List named = scala.jdk.javaapi.CollectionConverters.asJava(DataSourceStrategy$.MODULE$.normalizeExprs(
        scala.jdk.javaapi.CollectionConverters.asScala(own).toList(), scan.output()));
    List said = new ArrayList();
    for (int i = 0; i < named.size(); i++) {
      scala.Option predicate = DataSourceV2Strategy$.MODULE$.translateFilterV2((Expression) named.get(i));
      if (predicate.isDefined()) {
        said.add(predicate.get());
      }
    }
    return Trees.of((Predicate[]) said.toArray(new Predicate[0]));
  }

  /** A condition in which the time of the batch is what it will be, and with it what is computed of it. */
  static Expression folded(Expression given) {
    if (given instanceof CurrentBatchTimestamp) {
      return ((CurrentBatchTimestamp) given).toLiteral();
    }
    Expression own = (Expression) given.mapChildren(new Fold());
    if (own.foldable() && !(own instanceof Literal) && own != given) {
      return Literal$.MODULE$.create(own.eval(null), own.dataType());
    }
    return own;
  }
}

class VisitStreams extends scala.runtime.AbstractFunction1 {
  private final StreamRule rule;
  private final List conditions;

  VisitStreams(StreamRule rule, List conditions) {
    this.rule = rule;
    this.conditions = conditions;
  }

  public Object apply(Object plan) {
    return rule.visit((LogicalPlan) plan, conditions);
  }
}

class Fold extends scala.runtime.AbstractFunction1 {
  public Object apply(Object expression) {
    return StreamRule.folded((Expression) expression);
  }
}
