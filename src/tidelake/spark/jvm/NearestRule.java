package tidelake;

import java.util.ArrayList;
import java.util.List;
import java.util.function.BiFunction;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression$;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.NearestByJoin;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.catalyst.trees.TreePattern$;
import org.apache.spark.sql.types.StructType;

/**
 * Has APPROX NEAREST joins answered by the index of a table. It looks at a plan once all of its names are resolved,
 * before Spark's optimizer makes a product of all rows with all rows of such a join. Python is asked what to put in
 * its place; without an answer the join stays as it is, and so does one that is EXACT.
 */
public class NearestRule extends Rule {
  static final String VECTOR = "tidelake_vector";
  private final SparkSession session;
  private final BiFunction answers;

  public NearestRule(SparkSession session, BiFunction answers) {
    this.session = session;
    this.answers = answers;
  }

  public SparkSession session() {
    return session;
  }

  public TreeNode apply(TreeNode plan) {
    return plan.containsPattern(TreePattern$.MODULE$.NEAREST_BY_JOIN()) ? visit((LogicalPlan) plan) : plan;
  }

  LogicalPlan visit(LogicalPlan plan) {
    LogicalPlan own = (LogicalPlan) plan.mapChildren(new VisitJoins(this));
    if (!(own instanceof NearestByJoin) || !((NearestByJoin) own).approx() || !own.resolved()) {
      return own;
    }
    Object found = answers.apply(own, this);
    return found == null ? own : named((NearestByJoin) own, (LogicalPlan) found);
  }

  /** The rows of a join's left side, and beside each the vector that it looks for. */
  public LogicalPlan asking(NearestByJoin join, Expression vector) {
    List columns = new ArrayList(scala.jdk.javaapi.CollectionConverters.asJava(join.left().output()));
    columns.add(alias(vector, VECTOR, NamedExpression$.MODULE$.newExprId(), seq(new ArrayList())));
    return new Project(seq(columns), join.left());
  }

  /** The types of what a join gives, as JSON; its columns are called by their numbers, since names may be double. */
  public String types(NearestByJoin join) {
    StructType found = new StructType();
    List output = scala.jdk.javaapi.CollectionConverters.asJava(join.output());
    for (int i = 0; i < output.size(); i++) {
      found = found.add("c" + i, ((Attribute) output.get(i)).dataType(), true);
    }
    return found.json();
  }

  /** The same columns under the names, and the identities, by which the rest of the plan knows those of the join. */
  static LogicalPlan named(NearestByJoin join, LogicalPlan found) {
    List output = scala.jdk.javaapi.CollectionConverters.asJava(join.output());
    List made = scala.jdk.javaapi.CollectionConverters.asJava(found.output());
    List columns = new ArrayList();
    for (int i = 0; i < output.size(); i++) {
      Attribute each = (Attribute) output.get(i);
      columns.add(alias((Expression) made.get(i), each.name(), each.exprId(), each.qualifier()));
    }
    return new Project(seq(columns), found);
  }

  static Alias alias(
      Expression child, String name, org.apache.spark.sql.catalyst.expressions.ExprId id,
      scala.collection.immutable.Seq qualifier) {
    return new Alias(child, name, id, qualifier, scala.Option.empty(), seq(new ArrayList()));
  }

  static scala.collection.immutable.Seq seq(List list) {
    return scala.jdk.javaapi.CollectionConverters.asScala(list).toList();
  }

  /** Makes the rule for each session that is told of it. */
  public static class Rules extends scala.runtime.AbstractFunction1 {
    private BiFunction answers = null;

    /** Takes the function that gives what to put in a join's place, of the join and the rule. */
    public void answerWith(BiFunction given) {
      answers = given;
    }

    public Object apply(Object session) {
      return new NearestRule((SparkSession) session, answers);
    }
  }
}

class VisitJoins extends scala.runtime.AbstractFunction1 {
  private final NearestRule rule;

  VisitJoins(NearestRule rule) {
    this.rule = rule;
  }

  public Object apply(Object plan) {
    return rule.visit((LogicalPlan) plan);
  }
}
