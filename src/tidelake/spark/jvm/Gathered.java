package tidelake;

import java.io.Serializable;
import java.util.Iterator;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.spark.TaskContext;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection$;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.util.TaskCompletionListener;
import scala.runtime.AbstractFunction1;

/**
 * Bounds the rows that tasks hold before they are sent to the driver. A task gathers the whole of its partition as
 * Arrow batches, and a Java process that is out of memory ends, with the session and all that others run in it. So rows
 * are counted before they become batches, and a task that would hold too much fails instead. What all tasks of one
 * process hold at a time is counted together. This runs on executors.
 */
public class Gathered extends AbstractFunction1 implements Serializable {
  private static final long serialVersionUID = 1L;
  static final String TOO_LARGE = "tidelake: the result is larger than its budget";
  static final String NO_ROOM = "tidelake: the result is larger than the memory of Spark allows";
  /** A task's rows exist up to three times on their way: as batches, as its serialized result, and as that is read. */
  static final int SHARE = 6;
  static final AtomicLong HELD = new AtomicLong();
  private final StructType schema;
  private final long most;

  public Gathered(StructType schema, long most) {
    this.schema = schema;
    this.most = most;
  }

  /** Gives frames whose rows are counted. */
  public static class Frames {
    public Dataset counted(Dataset frame, long most) {
      StructType schema = frame.schema();
      RDD rows = frame.queryExecution().toRdd();
      RDD counted = rows.mapPartitions(
          new Gathered(schema, most), false, scala.reflect.ClassTag$.MODULE$.apply(InternalRow.class));
      return ((SparkSession) frame.sparkSession()).internalCreateDataFrame(counted, schema, false);
    }
  }

  public Object apply(Object rows) {
    Iterator given = scala.jdk.javaapi.CollectionConverters.asJava((scala.collection.Iterator) rows);
    Count count = new Count(given, UnsafeProjection$.MODULE$.create(schema), most);
    TaskContext.get().addTaskCompletionListener(count);
    return scala.jdk.javaapi.CollectionConverters.asScala((Iterator) count);
  }

  static class Count implements Iterator, TaskCompletionListener {
    private final Iterator rows;
    private final UnsafeProjection projection;
    private final long most;
    private final long room = Runtime.getRuntime().maxMemory() / SHARE;
    private long held = 0;

    Count(Iterator rows, UnsafeProjection projection, long most) {
      this.rows = rows;
      this.projection = projection;
      this.most = most;
    }

    public boolean hasNext() {
      return rows.hasNext();
    }

    public Object next() {
      Object row = rows.next();
      UnsafeRow flat = row instanceof UnsafeRow ? (UnsafeRow) row : projection.apply((InternalRow) row);
      long size = flat.getSizeInBytes();
      held += size;
      if (HELD.addAndGet(size) > room) {
        throw new IllegalStateException(NO_ROOM);
      }
      if (held > most) {
        throw new IllegalStateException(TOO_LARGE);
      }
      return flat;
    }

    public void remove() {
      throw new UnsupportedOperationException();
    }

    public void onTaskCompletion(TaskContext context) {
      HELD.addAndGet(-held);
      held = 0;
    }
  }
}
