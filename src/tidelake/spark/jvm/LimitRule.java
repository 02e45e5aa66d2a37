package tidelake;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.SortOrder;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LocalLimit;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.Sort;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.execution.datasources.DataSourceStrategy$;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Strategy$;

/**
 * Has scans stop early under a limit, and under an order by time with a limit, where conditions lie between that the scan
 * answers exactly. Spark pushes no limit over a condition that it asks again, and by what it asks again it prunes joins.
 * So everything stays in its plan, and the scan is told how many rows are enough.
 */
public class LimitRule extends Rule {
  public TreeNode apply(TreeNode plan) {
    try {
      return visit((LogicalPlan) plan);
    } catch (Throwable error) {
      return plan;  // more is read
    }
  }

  LogicalPlan visit(LogicalPlan plan) {
    LogicalPlan own = (LogicalPlan) plan.mapChildren(new VisitLimits(this));
    if (!(own instanceof LocalLimit) || !(((LocalLimit) own).limitExpr() instanceof Literal)) {
      return own;
    }
    Object limit = ((Literal) ((LocalLimit) own).limitExpr()).value();
    return limit instanceof Integer ? limited(own, ((Integer) limit).intValue()) : own;
  }

  /** A limit over selects and conditions, and perhaps one order, of one table. */
  static LogicalPlan limited(LogicalPlan limit, int rows) {
    List conditions = new ArrayList();
    Sort order = null;
    LogicalPlan at = (LogicalPlan) ((LocalLimit) limit).child();
    while (!(at instanceof DataSourceV2ScanRelation)) {
      if (at instanceof Filter) {
        Trees.part(((Filter) at).condition(), conditions);
        at = (LogicalPlan) ((Filter) at).child();
      } else if (at instanceof Project) {
        at = (LogicalPlan) ((Project) at).child();
      } else if (at instanceof Sort && order == null && ((Sort) at).global()) {
        order = (Sort) at;
        at = (LogicalPlan) order.child();
      } else {
        return limit;
      }
    }
    DataSourceV2ScanRelation relation = (DataSourceV2ScanRelation) at;
    if (conditions.isEmpty() || !(relation.scan() instanceof PlannedScan)) {
      return limit;  // without a condition Spark has told the builder
    }
    Map more = more((PlannedScan) relation.scan(), relation, conditions, order, rows);
    if (more == null) {
      return limit;
    }
    return (LogicalPlan) replaced(limit, relation, ((PlannedScan) relation.scan()).with(more));
  }

  /** Options by which the scan gives the rows that are needed; null where it cannot know which those are. */
  static Map more(PlannedScan scan, DataSourceV2ScanRelation relation, List conditions, Sort order, int rows) {
    Map options = scan.options();
    if (scan.table.isChanged || options.containsKey("tidelakelimit") || options.containsKey("tidelakefirst")) {
      return null;
    }
    List named = scala.jdk.javaapi.CollectionConverters.asJava(DataSourceStrategy$.MODULE$.normalizeExprs(
        scala.jdk.javaapi.CollectionConverters.asScala(conditions).toList(), relation.output()));
    Predicate[] predicates = new Predicate[named.size()];
    for (int i = 0; i < predicates.length; i++) {
      Expression each = (Expression) named.get(i);
      scala.Option predicate = DataSourceV2Strategy$.MODULE$.translateFilterV2(each);
      if (predicate.isEmpty() || !each.references().subsetOf(relation.outputSet())) {
        return null;
      }
      predicates[i] = (Predicate) predicate.get();
    }
    Map question = new HashMap();
    question.put("options", options);
    question.put("predicates", Trees.of(predicates));
    question.put("rows", Integer.valueOf(rows));
    if (order != null) {
      SortOrder first = (SortOrder) scala.jdk.javaapi.CollectionConverters.asJava(order.order()).get(0);
      if (!(first.child() instanceof AttributeReference) || !first.references().subsetOf(relation.outputSet())) {
        return null;
      }
      List column = scala.jdk.javaapi.CollectionConverters.asJava(DataSourceStrategy$.MODULE$.normalizeExprs(
          scala.jdk.javaapi.CollectionConverters.asScala(new ArrayList(java.util.Collections.singleton(first.child())))
              .toList(), relation.output()));
      question.put("column", ((AttributeReference) column.get(0)).name());
      question.put("descending", Boolean.valueOf(!first.isAscending()));
    }
    Map told = scan.table.door.ask("enough", question);
    return told.isEmpty() ? null : told;
  }

  static Object replaced(LogicalPlan plan, DataSourceV2ScanRelation relation, LakeScan scan) {
    if (plan != relation) {
      return plan.mapChildren(new Replace(relation, scan));
    }
    Object[] parts = new Object[plan.productArity()];  // however many a relation has on this Spark
    for (int i = 0; i < parts.length; i++) {
      Object each = plan.productElement(i);
      parts[i] = each == relation.scan() ? scan : each;
    }
    return plan.makeCopy(parts);
  }
}

class VisitLimits extends scala.runtime.AbstractFunction1 {
  private final LimitRule rule;

  VisitLimits(LimitRule rule) {
    this.rule = rule;
  }

  public Object apply(Object plan) {
    return rule.visit((LogicalPlan) plan);
  }
}

class Replace extends scala.runtime.AbstractFunction1 {
  private final DataSourceV2ScanRelation relation;
  private final LakeScan scan;

  Replace(DataSourceV2ScanRelation relation, LakeScan scan) {
    this.relation = relation;
    this.scan = scan;
  }

  public Object apply(Object plan) {
    return LimitRule.replaced((LogicalPlan) plan, relation, scan);
  }
}
