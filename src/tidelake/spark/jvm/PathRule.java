package tidelake;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.IsNotNull;
import org.apache.spark.sql.catalyst.expressions.IsNull;
import org.apache.spark.sql.catalyst.expressions.OuterReference;
import org.apache.spark.sql.catalyst.expressions.PlanExpression;
import org.apache.spark.sql.catalyst.expressions.variant.VariantGet;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import org.apache.spark.sql.types.VariantType;

/**
 * Tells scans which paths a whole query uses of VARIANT columns: what it groups, orders, joins and aggregates by, too,
 * of which Spark itself tells no source. A column that anything else looks at is read whole, and so is one that passes a
 * part of the plan of which it is not known here how it uses its rows.
 */
public class PathRule extends Rule {
  /** Plans that use their rows by their expressions alone, and pass on a column that these do not name. */
  static final Set PASSING = new HashSet(Arrays.asList(new String[] {
      "Project", "Filter", "Aggregate", "Sort", "Join", "LocalLimit", "GlobalLimit", "Offset", "Window", "Generate",
      "Expand", "RepartitionByExpression", "Repartition", "RebalancePartitions", "Sample"}));
  static final String KEYS = "tidelakekeys";

  public TreeNode apply(TreeNode plan) {
    try {
      tell((LogicalPlan) plan);
    } catch (Throwable error) {
      return plan;  // scans know what their builders were told
    }
    return plan;
  }

  static void tell(LogicalPlan plan) throws Exception {
    PathUses uses = new PathUses();
    uses.collect(plan);
    uses.whole(plan.output());
    Object[] scans = uses.scans.keySet().toArray();
    for (int i = 0; i < scans.length; i++) {
      List told = new ArrayList();
      List relations = (List) uses.scans.get(scans[i]);
      Map columns = new HashMap();
      for (int j = 0; j < relations.size(); j++) {
        uses.join((DataSourceV2ScanRelation) relations.get(j), columns);
      }
      Object[] names = columns.keySet().toArray();
      for (int j = 0; j < names.length; j++) {
        Object[] paths = ((Set) columns.get(names[j])).toArray();
        for (int k = 0; k < paths.length; k++) {
          Map path = new HashMap();
          path.put("path", paths[k]);
          Map each = new HashMap();
          each.put("column", new Object[] {names[j]});
          each.put("metadata", new ObjectMapper().writeValueAsString(path));
          told.add(each);
        }
      }
      ((LakeScan) scans[i]).set(KEYS, told.isEmpty() ? null : new ObjectMapper().writeValueAsString(told));
    }
  }
}

/** How a plan uses the VARIANT columns of scans of ours: paths of each, "$" of one that is needed whole. */
class PathUses {
  static final String WHOLE = "$";
  final Map scans = new IdentityHashMap();  // of scans: the relations that have them
  private final Map paths = new HashMap();  // of the ids of columns

  /** Notes what a plan and all below it use, and what its subqueries do. */
  void collect(LogicalPlan plan) {
    if (plan instanceof DataSourceV2ScanRelation && ((DataSourceV2ScanRelation) plan).scan() instanceof LakeScan) {
      Object scan = ((DataSourceV2ScanRelation) plan).scan();
      if (!scans.containsKey(scan)) {
        scans.put(scan, new ArrayList());
      }
      ((List) scans.get(scan)).add(plan);
      return;
    }
    List children = scala.jdk.javaapi.CollectionConverters.asJava(plan.children());
    for (int i = 0; i < children.size(); i++) {
      collect((LogicalPlan) children.get(i));
      if (!PathRule.PASSING.contains(plan.getClass().getSimpleName())) {
        whole(((LogicalPlan) children.get(i)).output());
      }
    }
    List inner = scala.jdk.javaapi.CollectionConverters.asJava(plan.innerChildren());
    for (int i = 0; i < inner.size(); i++) {
      if (inner.get(i) instanceof LogicalPlan) {
        collect((LogicalPlan) inner.get(i));
        whole(((LogicalPlan) inner.get(i)).output());
      }
    }
    List expressions = scala.jdk.javaapi.CollectionConverters.asJava(plan.expressions());
    for (int i = 0; i < expressions.size(); i++) {
      if (!(plan instanceof Project && expressions.get(i) instanceof AttributeReference)) {
        use((Expression) expressions.get(i));
      }
    }
  }

  void use(Expression given) {
    if (given instanceof AttributeReference) {
      add(given, WHOLE);
      return;
    }
    if (given instanceof OuterReference) {
      add(((OuterReference) given).e(), WHOLE);
      return;
    }
    if (given instanceof VariantGet && ((VariantGet) given).child() instanceof AttributeReference
        && ((VariantGet) given).path().foldable()) {
      Object path = ((VariantGet) given).path().eval(null);
      add(((VariantGet) given).child(), path == null ? WHOLE : path.toString());
      return;
    }
    boolean isAsked = given instanceof IsNull && ((IsNull) given).child() instanceof AttributeReference
        || given instanceof IsNotNull && ((IsNotNull) given).child() instanceof AttributeReference;
    if (isAsked) {
      return;  // values without keys are given for what is no null, and nulls for nulls
    }
    if (given instanceof PlanExpression && ((PlanExpression) given).plan() instanceof LogicalPlan) {
      LogicalPlan plan = (LogicalPlan) ((PlanExpression) given).plan();
      collect(plan);
      whole(plan.output());
    }
    List children = scala.jdk.javaapi.CollectionConverters.asJava(given.children());
    for (int i = 0; i < children.size(); i++) {
      use((Expression) children.get(i));
    }
  }

  void whole(scala.collection.immutable.Seq output) {
    List columns = scala.jdk.javaapi.CollectionConverters.asJava(output);
    for (int i = 0; i < columns.size(); i++) {
      add(columns.get(i), WHOLE);
    }
  }

  void add(Object column, String path) {
    if (!(((Attribute) column).dataType() instanceof VariantType)) {
      return;
    }
    Object id = ((Attribute) column).exprId();
    if (!paths.containsKey(id)) {
      paths.put(id, new TreeSet());
    }
    ((Set) paths.get(id)).add(path);
  }

  /** Adds the paths that are used of a scan's columns where a relation has it; of unknown ones the whole. */
  void join(DataSourceV2ScanRelation relation, Map columns) {
    List output = scala.jdk.javaapi.CollectionConverters.asJava(relation.output());
    for (int i = 0; i < output.size(); i++) {
      Attribute each = (Attribute) output.get(i);
      if (each.dataType() instanceof VariantType) {
        if (!columns.containsKey(each.name())) {
          columns.put(each.name(), new TreeSet());
        }
        Set used = (Set) paths.get(each.exprId());
        ((Set) columns.get(each.name())).addAll(used == null ? new HashSet(Arrays.asList(new String[] {WHOLE})) : used);
      }
    }
  }
}
