package tidelake;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.util.function.BiFunction;
import net.razorvine.pickle.Pickler;
import org.apache.spark.api.python.PythonFunction;
import org.apache.spark.sql.catalyst.util.CaseInsensitiveMap$;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceCreationResult;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceReadInfo;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceWriteInfo;
import org.apache.spark.sql.execution.datasources.v2.python.PythonFilterPushdownResult;
import org.apache.spark.sql.execution.datasources.v2.python.UserDefinedPythonDataSource;
import org.apache.spark.sql.execution.datasources.v2.python.UserDefinedPythonDataSource$;
import org.apache.spark.sql.execution.datasources.v2.python.UserDefinedPythonDataSourceCommitRunner;
import org.apache.spark.sql.execution.datasources.v2.python.UserDefinedPythonDataSourceFilterPushdownRunner;
import org.apache.spark.sql.execution.datasources.v2.python.UserDefinedPythonDataSourceReadRunner;
import org.apache.spark.sql.execution.datasources.v2.python.UserDefinedPythonDataSourceRunner;
import org.apache.spark.sql.execution.datasources.v2.python.UserDefinedPythonDataSourceWriteRunner;
import org.apache.spark.sql.execution.python.EvaluatePython$;
import org.apache.spark.sql.execution.python.PythonPlannerRunner;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * The data source as the driver's own Python plans it. Spark starts a Python process for every step of a plan; this
 * says the same words, in the same order, to the Python that has the session, which has everything loaded and open.
 */
public class DriverSource extends UserDefinedPythonDataSource {
  private final transient BiFunction planner;

  DriverSource(PythonFunction source, BiFunction planner) {
    super(source);
    this.planner = planner;
  }

  /** Makes a source of the pickled class and of what plans in Python. */
  public static class Factory implements BiFunction {
    public Object apply(Object source, Object planner) {
      return new DriverSource((PythonFunction) source, (BiFunction) planner);
    }
  }

  /** A source with a plan of its own: see ScanRule. */
  static class PlannedAlone extends PythonDataSourceCreationResult {
    PlannedAlone(byte[] source, StructType schema) {
      super(source, schema);
    }
  }

  /** Tasks on other machines do not know this class, and do not plan. */
  public Object writeReplace() {
    return new UserDefinedPythonDataSource(dataSourceCls());
  }

  public PythonDataSourceCreationResult createDataSourceInPython(
      String name, CaseInsensitiveStringMap options, scala.Option schema) {
    PythonDataSourceCreationResult made = (PythonDataSourceCreationResult) ask(
        new UserDefinedPythonDataSourceRunner(
            dataSourceCls(), name, schema, CaseInsensitiveMap$.MODULE$.apply(map(options))));
    return options.containsKey("tidelakeownplan") ? new PlannedAlone(made.dataSource(), made.schema()) : made;
  }

  /** A plan that several scans share takes no filters, so there is nobody to ask. */
  public scala.Option pushdownFiltersInPython(
      PythonDataSourceCreationResult made, StructType schema, Filter[] filters) {
    if (!(made instanceof PlannedAlone)) {
      return scala.Option.empty();
    }
    UserDefinedPythonDataSourceFilterPushdownRunner runner = new UserDefinedPythonDataSourceFilterPushdownRunner(
        createPythonFunction(made.dataSource()), schema, scala.jdk.javaapi.CollectionConverters.asScala(
            java.util.Arrays.asList(filters)).toSeq());
    return runner.isAnyFilterSupported() ? scala.Option.apply(ask(runner)) : scala.Option.empty();
  }

  public PythonDataSourceReadInfo createReadInfoInPython(
      PythonDataSourceCreationResult made, StructType schema, boolean isStreaming) {
    return (PythonDataSourceReadInfo) ask(new UserDefinedPythonDataSourceReadRunner(
        createPythonFunction(made.dataSource()), UserDefinedPythonDataSource$.MODULE$.readInputSchema(), schema,
        isStreaming));
  }

  public PythonDataSourceWriteInfo createWriteInfoInPython(
      String name, StructType schema, CaseInsensitiveStringMap options, boolean overwrite, boolean isStreaming) {
    return (PythonDataSourceWriteInfo) ask(new UserDefinedPythonDataSourceWriteRunner(
        dataSourceCls(), name, schema, map(options), overwrite, isStreaming));
  }

  public void commitWriteInPython(byte[] writer, WriterCommitMessage[] messages, boolean abort) {
    ask(new UserDefinedPythonDataSourceCommitRunner(dataSourceCls(), writer, messages, abort));
  }

  static scala.collection.immutable.Map map(CaseInsensitiveStringMap options) {
    return scala.collection.immutable.Map$.MODULE$.from(
        scala.jdk.javaapi.CollectionConverters.asScala(options.asCaseSensitiveMap()));
  }

  /** What the driver's Python says; null where it cannot be asked, which a process of Spark's then is. */
  byte[] answered(String module, byte[] question) {
    try {
      return (byte[]) planner.apply(module, question);
    } catch (RuntimeException error) {
      return null;
    }
  }

  Object ask(PythonPlannerRunner runner) {
    try {
      EvaluatePython$.MODULE$.registerPicklers();
      ByteArrayOutputStream question = new ByteArrayOutputStream();
      DataOutputStream out = new DataOutputStream(question);
      runner.writeToPython(out, new Pickler(true, false));
      out.flush();
      byte[] answer = answered(runner.workerModule(), question.toByteArray());
      if (answer == null) {
        return runner.runInPython(runner.runInPython$default$1());
      }
      return runner.receiveFromPython(new DataInputStream(new ByteArrayInputStream(answer)));
    } catch (java.io.IOException error) {
      throw new RuntimeException(error);
    }
  }
}
