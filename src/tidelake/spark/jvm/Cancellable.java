package tidelake;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.ScalaUDF;
import org.apache.spark.sql.catalyst.planning.ExtractEquiJoinKeys$;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.Generate;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.Window;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.types.DataTypes;

/**
 * Lets a task hear within loops that it is cancelled. Spark looks for that where a task reads its input, up to a
 * thousand rows at a time. What joins and generators make of these rows is one loop, and it can take hours. So the rows
 * that go into them, and those that come out of windows, pass a filter that looks and lets them all through.
 *
 * A join of two tables on equal keys stays as it is: it pays for each row, and reads its input often enough.
 */
public class Cancellable extends Rule {
  private final Expression looks = new ScalaUDF(
      new Look(), DataTypes.BooleanType, seq(new ArrayList()), seq(new ArrayList()), scala.Option.empty(),
      scala.Option.apply("tidelake_goes_on"), false, true);

  public TreeNode apply(TreeNode plan) {
    return visit((LogicalPlan) plan);
  }

  LogicalPlan visit(LogicalPlan plan) {
    List before = scala.jdk.javaapi.CollectionConverters.asJava(plan.children());
    List after = new ArrayList();
    boolean isSame = true;
    for (int i = 0; i < before.size(); i++) {
      LogicalPlan child = (LogicalPlan) before.get(i);
      LogicalPlan own = visit(child);
      if (isLooped(plan, child) && !isLookedAt(plan) && !isLookedAt(child)) {
        own = new Filter(looks, own);
      }
      after.add(own);
      isSame = isSame && own == child;
    }
    return isSame ? plan : (LogicalPlan) plan.withNewChildren(seq(after));
  }

  static boolean isLooped(LogicalPlan plan, LogicalPlan child) {
    if (plan instanceof Generate || child instanceof Window) {
      return true;
    }
    return plan instanceof Join && !(isRead(child) && ExtractEquiJoinKeys$.MODULE$.unapply((Join) plan).isDefined());
  }

  /** Whether rows come from a relation as they are, or fewer of them. */
  static boolean isRead(LogicalPlan plan) {
    LogicalPlan below = plan;
    while (below instanceof Project || below instanceof Filter) {
      below = (LogicalPlan) below.children().head();
    }
    return below.children().isEmpty();
  }

  boolean isLookedAt(LogicalPlan plan) {
    return plan instanceof Filter && ((Filter) plan).condition() == looks;
  }

  static scala.collection.immutable.Seq seq(List list) {
    return scala.jdk.javaapi.CollectionConverters.asScala(list).toList();
  }

  /** Is always true, or ends the task if it is cancelled. */
  public static class Look extends scala.runtime.AbstractFunction0 implements Serializable {
    private static final long serialVersionUID = 1L;

    public Object apply() {
      TaskContext task = TaskContext.get();
      if (task != null) {
        task.killTaskIfInterrupted();
      }
      return Boolean.TRUE;
    }
  }
}
