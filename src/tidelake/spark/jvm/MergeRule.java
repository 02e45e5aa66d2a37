package tidelake;

import java.util.List;
import java.util.Map;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation;
import org.apache.spark.sql.catalyst.plans.logical.AppendData;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.OverwriteByExpression;
import org.apache.spark.sql.catalyst.plans.logical.OverwritePartitionsDynamic;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.connector.catalog.CatalogManager;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;

/**
 * Has the option mergeSchema of a frame's write mean what INSERT WITH SCHEMA EVOLUTION says in SQL, where the table is one
 * of a lake's catalog. Spark compares the columns of rows and table before anybody sees the option, so the rule looks at
 * plans before that. It leaves to Spark which columns come, and all else.
 */
public class MergeRule extends Rule {
  static final String CATALOG = "tidelake.LakeCatalog";
  private final SparkSession session;

  public MergeRule(SparkSession session) {
    this.session = session;
  }

  public TreeNode apply(TreeNode plan) {
    try {
      boolean isWrite = plan instanceof AppendData || plan instanceof OverwriteByExpression
          || plan instanceof OverwritePartitionsDynamic;
      return isWrite ? merging((LogicalPlan) plan) : plan;
    } catch (Throwable error) {
      return plan;  // Spark refuses what the table lacks
    }
  }

  /** The same write, with schema evolution if its options and its table say so, and this Spark has that for frames. */
  LogicalPlan merging(LogicalPlan write) {
    Object[] parts = new Object[write.productArity()];
    boolean isMerging = false;
    int evolving = -1;
    for (int i = 0; i < parts.length; i++) {
      parts[i] = write.productElement(i);
      String name = write.productElementName(i);
      if (name.equals("writeOptions")) {
        isMerging = isMerging((scala.collection.immutable.Map) parts[i]);
      } else if (name.equals("withSchemaEvolution")) {
        evolving = i;
      }
    }
    if (evolving < 0 || !isMerging || Boolean.TRUE.equals(parts[evolving]) || !isOurs(parts[0])) {
      return write;
    }
    parts[evolving] = Boolean.TRUE;
    return (LogicalPlan) write.makeCopy(parts);
  }

  static boolean isMerging(scala.collection.immutable.Map given) {
    Map options = scala.jdk.javaapi.CollectionConverters.asJava(given);
    Object[] names = options.keySet().toArray();
    for (int i = 0; i < names.length; i++) {
      if (((String) names[i]).equalsIgnoreCase("mergeSchema")) {
        return "true".equalsIgnoreCase((String) options.get(names[i]));
      }
    }
    return false;
  }

  /** Whether a table is one of a lake, be it found already or only named. */
  boolean isOurs(Object table) {
    if (table instanceof DataSourceV2Relation) {
      scala.Option catalog = ((DataSourceV2Relation) table).catalog();
      return catalog.isDefined() && isLake(catalog.get());
    }
    if (!(table instanceof UnresolvedRelation)) {
      return false;
    }
    List parts = scala.jdk.javaapi.CollectionConverters.asJava(((UnresolvedRelation) table).multipartIdentifier());
    CatalogManager catalogs = session.sessionState().catalogManager();
    boolean isNamed = parts.size() > 1 && catalogs.isCatalogRegistered((String) parts.get(0));
    return isLake(isNamed ? catalogs.catalog((String) parts.get(0)) : catalogs.currentCatalog());
  }

  static boolean isLake(Object catalog) {
    return catalog.getClass().getName().equals(CATALOG);
  }

  /** Makes the rule for each session that is told of it. */
  public static class Rules extends scala.runtime.AbstractFunction1 {
    public Object apply(Object session) {
      return new MergeRule((SparkSession) session);
    }
  }
}
