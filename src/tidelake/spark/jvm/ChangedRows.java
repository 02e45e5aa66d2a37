package tidelake;

import java.io.IOException;
import java.io.Serializable;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.JoinedRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.connector.write.DataWriterFactory;
import org.apache.spark.sql.connector.write.DeltaWriter;
import org.apache.spark.sql.connector.write.DeltaWriterFactory;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/**
 * Hands the changes of an UPDATE, DELETE or MERGE to Spark's writer of a Python source. Spark gives them one by one, and
 * that writer takes many at once: so they are gathered, some megabytes at a time. A change is a row of what is done, the
 * new row or nulls, and the id of the old row or nulls. This runs on executors.
 */
public class ChangedRows implements DeltaWriterFactory {
  static final int DELETE = 1;
  static final int UPDATE = 2;
  static final int INSERT = 3;
  static final long HELD_BYTES = 32L << 20;  // of gathered changes
  static final String OPERATION = "_tidelake_op";
  static final String ID = "_tidelake_id_";
  final DataWriterFactory inner;
  final StructType rows;
  final StructType ids;

  public ChangedRows(DataWriterFactory inner, StructType rows, StructType ids) {
    this.inner = inner;
    this.rows = rows;
    this.ids = ids;
  }

  /** What the rows are that the Python source gets. */
  public static StructType schema(StructType rows, StructType ids) {
    StructType whole = new StructType().add(OPERATION, DataTypes.IntegerType, false);
    for (int i = 0; i < rows.fields().length; i++) {
      StructField field = rows.fields()[i];
      whole = whole.add(field.name(), field.dataType(), true);
    }
    for (int i = 0; i < ids.fields().length; i++) {
      whole = whole.add(ID + i, ids.fields()[i].dataType(), true);
    }
    return whole;
  }

  public DeltaWriter createWriter(int partition, long task) {
    return new Changes(this, partition, task);
  }

  /** What the writers of one task said, in order. */
  public static class Message implements WriterCommitMessage, Serializable {
    final WriterCommitMessage[] parts;

    Message(WriterCommitMessage[] parts) {
      this.parts = parts;
    }

    /** The messages of all tasks, as the inner writer has them. */
    public static WriterCommitMessage[] flat(WriterCommitMessage[] messages) {
      List all = new ArrayList();
      for (int i = 0; i < messages.length; i++) {
        if (messages[i] instanceof Message) {
          WriterCommitMessage[] parts = ((Message) messages[i]).parts;
          for (int j = 0; j < parts.length; j++) {
            all.add(parts[j]);
          }
        }
      }
      return (WriterCommitMessage[]) all.toArray(new WriterCommitMessage[0]);
    }
  }

  /** Gathers the changes of one task. */
  public static class Changes implements DeltaWriter {
    private final ChangedRows factory;
    private final int partition;
    private final long task;
    private final UnsafeProjection whole;
    private final InternalRow noRow;
    private final InternalRow noId;
    private final List messages = new ArrayList();
    private List held = new ArrayList();
    private long bytes = 0L;

    Changes(ChangedRows factory, int partition, long task) {
      this.factory = factory;
      this.partition = partition;
      this.task = task;
      this.whole = UnsafeProjection.create(schema(factory.rows, factory.ids));
      this.noRow = new GenericInternalRow(factory.rows.fields().length);
      this.noId = new GenericInternalRow(factory.ids.fields().length);
    }

    public void delete(Object metadata, Object id) throws IOException {
      take(DELETE, noRow, (InternalRow) id);
    }

    public void update(Object metadata, Object id, Object row) throws IOException {
      take(UPDATE, (InternalRow) row, (InternalRow) id);
    }

    public void insert(Object row) throws IOException {
      take(INSERT, (InternalRow) row, noId);
    }

    public void write(Object row) throws IOException {
      insert(row);
    }

    private void take(int operation, InternalRow row, InternalRow id) throws IOException {
      InternalRow head = new GenericInternalRow(new Object[] {Integer.valueOf(operation)});
      UnsafeRow change = whole.apply(new JoinedRow(head, new JoinedRow(row, id))).copy();
      held.add(change);
      bytes += change.getSizeInBytes();
      if (bytes >= HELD_BYTES) {
        hand();
      }
    }

    private void hand() throws IOException {
      List given = held;
      held = new ArrayList();
      bytes = 0L;
      DataWriter writer = factory.inner.createWriter(partition, task);
      try {
        writer.writeAll(given.iterator());
        messages.add(writer.commit());
      } finally {
        writer.close();
      }
    }

    public WriterCommitMessage commit() throws IOException {
      if (!held.isEmpty()) {
        hand();
      }
      return new Message((WriterCommitMessage[]) messages.toArray(new WriterCommitMessage[0]));
    }

    /** What was written lies in the folder of the job, which the driver gives up. */
    public void abort() {
      held = new ArrayList();
    }

    public void close() {}
  }
}
