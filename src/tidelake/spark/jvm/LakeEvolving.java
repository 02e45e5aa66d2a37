package tidelake;

import java.util.Map;
import java.util.function.BiFunction;
import org.apache.spark.sql.connector.catalog.SupportsSchemaEvolution;
import org.apache.spark.sql.connector.catalog.TableChange$AddColumn;
import org.apache.spark.sql.connector.catalog.TableChange$ColumnChange;
import org.apache.spark.sql.connector.catalog.TableChange$UpdateColumnType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.StructType;

/**
 * Tables that say which changes of their columns a write may bring. Spark would otherwise ask for the type of each
 * column as the rows have it: of a BIGINT that is given an INT, a change that no table can have.
 */
public class LakeEvolving implements BiFunction {
  public Object apply(Object door, Object about) {
    return new EvolvingRows((Door) door, (Map) about);
  }
}

class EvolvingRows extends LakeRows implements SupportsSchemaEvolution {
  EvolvingRows(Door door, Map about) {
    super(door, about);
  }

  public boolean supportsColumnChange(TableChange$ColumnChange change) {
    if (change.fieldNames().length != 1) {
      return false;
    }
    if (change instanceof TableChange$AddColumn) {
      return true;
    }
    scala.Option at = schema().getFieldIndex(change.fieldNames()[0]);
    return change instanceof TableChange$UpdateColumnType && at.isDefined()
        && isWider(schema().fields()[((Integer) at.get()).intValue()].dataType(),
            ((TableChange$UpdateColumnType) change).newDataType());
  }

  /** Whether a column may take this type, as ALTER COLUMN may give it. */
  static boolean isWider(DataType held, DataType asked) {
    if (held instanceof DecimalType && asked instanceof DecimalType) {
      return ((DecimalType) held).scale() == ((DecimalType) asked).scale()
          && ((DecimalType) held).precision() < ((DecimalType) asked).precision();
    }
    boolean isReal = asked.equals(DataTypes.DoubleType) || asked.equals(DataTypes.FloatType);
    if (held.equals(DataTypes.IntegerType)) {
      return isReal || asked.equals(DataTypes.LongType);
    }
    return held.equals(DataTypes.LongType) && isReal;
  }
}
