package tidelake;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.BiFunction;
import java.util.function.Function;
import org.apache.spark.SparkThrowable;
import org.apache.spark.sql.connector.expressions.Cast;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.Literal;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.DataType;

/** Asks Python, which lake a catalog is being told by the session's settings of now. */
class Door {
  private static final ObjectMapper JSON = new ObjectMapper();
  static BiFunction answers = null;
  static Function columns = null;
  static BiFunction builders = null;
  static boolean hasLooked = false;
  private static final Map KNOWN = new HashMap();
  private static BiFunction companion = null;
  private final String catalog;
  private final Map options;

  Door(String catalog, Map options) {
    this.catalog = catalog;
    this.options = options;
  }

  /** Remembers what the settings of a session say of a catalog, for when another session is the thread's. */
  static void remember(Object session, Map options) {
    synchronized (KNOWN) {
      KNOWN.put(session, options);
    }
  }

  String catalog() {
    return catalog;
  }

  /**
   * What the settings of the catalog's own session say of it now. Spark asks from threads whose session may be another,
   * with another lake under the same name: then it is what they said last.
   */
  Map options() {
    String prefix = "spark.sql.catalog." + catalog + ".";
    Map all = scala.jdk.javaapi.CollectionConverters.asJava(SQLConf.get().getAllConfs());
    Map found = new HashMap();
    Object[] names = all.keySet().toArray();
    for (int i = 0; i < names.length; i++) {
      if (((String) names[i]).startsWith(prefix)) {
        found.put(((String) names[i]).substring(prefix.length()), all.get(names[i]));
      }
    }
    Object own = options.get("session");
    Object seen = found.get("session");
    synchronized (KNOWN) {
      if (own == null ? seen == null : own.equals(seen)) {
        if (own != null) {
          KNOWN.put(own, found);
        }
        return found.isEmpty() ? options : found;
      }
      return KNOWN.containsKey(own) ? (Map) KNOWN.get(own) : options;
    }
  }

  Map ask(String verb, Map question) {
    try {
      BiFunction asked = answers == null ? companion() : answers;
      Map whole = new HashMap(question);
      whole.put("catalog", options());
      String answer = (String) asked.apply(verb, JSON.writeValueAsString(whole));
      Map told = (Map) JSON.readValue(answer, Map.class);
      if (told.containsKey("error")) {
        throw new Refused((String) told.get("error"), (String) told.get("message"));
      }
      return told;
    } catch (IOException error) {
      throw new RuntimeException(error);
    }
  }

  /** Answers where the program that has the session is no Python; see Companion, which a server's jar has. */
  static synchronized BiFunction companion() {
    if (companion == null) {
      try {
        Class found = Class.forName("tidelake.Companion", true, Door.class.getClassLoader());
        companion = (BiFunction) found.getDeclaredConstructor(new Class[0]).newInstance(new Object[0]);
      } catch (Exception error) {
        throw new IllegalStateException(
            "tidelake: this catalog is answered by Python: call tidelake.spark.register(spark) first", error);
      }
    }
    return companion;
  }

  /** What makes scans that take more than columns and conditions, where this Spark has it; see LakePushdown. */
  static synchronized BiFunction builders() {
    if (!hasLooked) {
      hasLooked = true;
      builders = optional("tidelake.LakePushdown");
    }
    return builders;
  }

  /** An object of a class of ours that not every Spark can have; null without it. */
  static BiFunction optional(String name) {
    try {
      Class found = Class.forName(name, true, Door.class.getClassLoader());
      return (BiFunction) found.getDeclaredConstructor(new Class[0]).newInstance(new Object[0]);
    } catch (Throwable error) {
      return null;
    }
  }

  /** What conditions are in Python: a text that joins those that can be said, and which those are. */
  Map where(Map options, Predicate[] predicates, boolean exactly) {
    Map question = new HashMap();
    question.put("options", options);
    question.put("predicates", trees(predicates));
    question.put("exactly", Boolean.valueOf(exactly));
    return ask("where", question);
  }

  static List trees(Predicate[] predicates) {
    List trees = new ArrayList();
    for (int i = 0; i < predicates.length; i++) {
      trees.add(tree(predicates[i]));
    }
    return trees;
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

/** What Python says no to, with the kind of its error. Being Spark's own sort, it is shown as it is. */
class Refused extends IllegalArgumentException implements SparkThrowable {
  final String kind;

  Refused(String kind, String message) {
    super(message);
    this.kind = kind;
  }

  public String getCondition() {
    return null;
  }

  public String getSqlState() {
    return null;
  }

  public Map getMessageParameters() {
    return new HashMap();
  }
}
