package tidelake;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.util.HashMap;
import java.util.Map;
import java.util.function.BiFunction;
import java.util.function.Function;
import org.apache.spark.SparkThrowable;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.internal.SQLConf;

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
    question.put("predicates", Trees.of(predicates));
    question.put("exactly", Boolean.valueOf(exactly));
    return ask("where", question);
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
