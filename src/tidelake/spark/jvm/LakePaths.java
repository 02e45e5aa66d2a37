package tidelake;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.BiFunction;
import org.apache.spark.sql.connector.read.SupportsPushDownVariantExtractions;
import org.apache.spark.sql.connector.read.VariantExtraction;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * Scans that hear which paths a query takes out of VARIANT columns. They take none of these extractions, so Spark takes
 * and casts by itself, out of values that then need not have more than these paths.
 */
public class LakePaths implements BiFunction {
  public Object apply(Object table, Object options) {
    return new HearingBuilder((LakeSource) table, (CaseInsensitiveStringMap) options);
  }
}

class HearingBuilder extends PushingBuilder implements SupportsPushDownVariantExtractions {
  HearingBuilder(LakeSource table, CaseInsensitiveStringMap given) {
    super(table, given);
  }

  public boolean[] pushVariantExtractions(VariantExtraction[] extractions) {
    List told = new ArrayList();
    for (int i = 0; i < extractions.length; i++) {
      Map each = new HashMap();
      each.put("column", extractions[i].columnName());
      each.put("metadata", extractions[i].metadata().json());
      told.add(each);
    }
    try {
      options.put("tidelakekeys", new ObjectMapper().writeValueAsString(told));
    } catch (Exception error) {
      options.remove("tidelakekeys");  // columns are read whole
    }
    return new boolean[extractions.length];
  }
}
