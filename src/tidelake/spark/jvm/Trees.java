package tidelake;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.connector.expressions.Cast;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.Literal;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.types.DataType;

/** Conditions of Spark as trees of maps and lists, which JSON can say; what has no such form is a node named "?". */
class Trees {
  static List of(Predicate[] predicates) {
    List trees = new ArrayList();
    for (int i = 0; i < predicates.length; i++) {
      trees.add(tree(predicates[i]));
    }
    return trees;
  }

  /** Adds the parts that AND joins to a list. */
  static void part(org.apache.spark.sql.catalyst.expressions.Expression condition, List parts) {
    if (condition instanceof And) {
      part((org.apache.spark.sql.catalyst.expressions.Expression) ((And) condition).left(), parts);
      part((org.apache.spark.sql.catalyst.expressions.Expression) ((And) condition).right(), parts);
    } else {
      parts.add(condition);
    }
  }

  /** Values are as Spark keeps them, so that no time zone comes between: times are microseconds, dates are days. */
  static Map tree(Expression given) {
    Map node = new HashMap();
    if (given instanceof Predicate) {
      List children = new ArrayList();
      for (int i = 0; i < given.children().length; i++) {
        children.add(tree(given.children()[i]));
      }
      node.put("name", ((Predicate) given).name());
      node.put("children", children);
    } else if (given instanceof NamedReference) {
      node.put("column", ((NamedReference) given).fieldNames());
    } else if (given instanceof Literal) {
      Object value = ((Literal) given).value();
      boolean isPlain = value == null || value instanceof Number && !(value instanceof java.math.BigDecimal)
          || value instanceof Boolean;
      node.put("type", ((Literal) given).dataType().simpleString());
      node.put("value", isPlain ? value : value.toString());
    } else if (!variant(given, node)) {
      node.put("name", "?");
      node.put("children", new ArrayList());
    }
    return node;
  }

  /** Tells of a path into a VARIANT column, where this Spark pushes such down. */
  static boolean variant(Expression given, Map node) {
    if (given instanceof Cast && variant(((Cast) given).expression(), node)) {
      node.put("to", "variant".equals(node.get("to")) ? ((Cast) given).dataType().simpleString() : "?");
      return true;
    }
    if (!given.getClass().getName().equals("org.apache.spark.sql.connector.expressions.VariantGet")) {
      return false;
    }
    try {
      Object child = given.children()[0];
      if (child instanceof NamedReference) {
        Object path = given.getClass().getMethod("path", new Class[0]).invoke(given, new Object[0]);
        Object to = given.getClass().getMethod("targetType", new Class[0]).invoke(given, new Object[0]);
        node.put("variant", ((NamedReference) child).fieldNames());
        node.put("path", path);
        node.put("to", ((DataType) to).simpleString());
        return true;
      }
    } catch (Exception error) {
      return false;  // it prunes nothing
    }
    return false;
  }
}
