package tidelake;

import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStreamWriter;
import java.util.Base64;
import java.util.Map;
import java.util.function.BiFunction;
import org.apache.spark.api.python.PythonUtils$;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.datasources.DataSourceManager;
import org.apache.spark.sql.execution.datasources.v2.python.UserDefinedPythonDataSource;

/**
 * Answers a catalog's questions in a Python process of its own, in a JVM that no Python program has started: a server, a
 * shell. A question is a line, and so is its answer. The process ends with the JVM, whose end of the pipe it reads.
 */
public class Companion implements BiFunction {
  private Process process = null;
  private BufferedWriter questions = null;
  private BufferedReader answers = null;

  void start() throws IOException {
    ProcessBuilder builder = new ProcessBuilder(new String[] {
        PythonUtils$.MODULE$.defaultPythonExec(), "-m", "tidelake.spark.catalog.companion"});
    process = builder.redirectError(ProcessBuilder.Redirect.INHERIT).start();
    questions = new BufferedWriter(new OutputStreamWriter(process.getOutputStream(), "UTF-8"));
    answers = new BufferedReader(new InputStreamReader(process.getInputStream(), "UTF-8"));
  }

  public synchronized Object apply(Object verb, Object question) {
    if (question instanceof Map) {
      register((Map) question);
      return null;
    }
    String answer = null;
    try {
      if (process == null || !process.isAlive()) {
        start();
      }
      questions.write(verb + " " + question + "\n");
      questions.flush();
      answer = answers.readLine();
    } catch (IOException error) {
      throw new IllegalStateException("tidelake: no Python answers for this catalog: " + error.getMessage(), error);
    }
    if (answer == null) {
      throw new IllegalStateException(
          "tidelake: no Python answers for this catalog: PYSPARK_PYTHON must be one that has tidelake");
    }
    return answer;
  }

  /** Makes the source known to the session that asks, by its pickled class, if nobody did. */
  static void register(Map told) {
    DataSourceManager known = SparkSession.active().sessionState().dataSourceManager();
    if (!known.dataSourceExists("tidelake")) {
      byte[] pickled = Base64.getDecoder().decode((String) told.get("pickled"));
      known.registerDataSource(
          "tidelake", new UserDefinedPythonDataSource(PythonUtils$.MODULE$.createPythonFunction(pickled)));
    }
  }
}
