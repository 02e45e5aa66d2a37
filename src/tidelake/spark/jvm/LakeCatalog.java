package tidelake;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.function.BiFunction;
import java.util.function.Function;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.analysis.NamespaceAlreadyExistsException;
import org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.catalyst.analysis.NonEmptyNamespaceException;
import org.apache.spark.sql.catalyst.analysis.TableAlreadyExistsException;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.NamespaceChange;
import org.apache.spark.sql.connector.catalog.ProcedureCatalog;
import org.apache.spark.sql.connector.catalog.StagedTable;
import org.apache.spark.sql.connector.catalog.StagingTableCatalog;
import org.apache.spark.sql.connector.catalog.SupportsNamespaces;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableChange$AddColumn;
import org.apache.spark.sql.connector.catalog.TableChange$RemoveProperty;
import org.apache.spark.sql.connector.catalog.TableChange$SetProperty;
import org.apache.spark.sql.connector.catalog.TableChange$UpdateColumnComment;
import org.apache.spark.sql.connector.catalog.TableChange$UpdateColumnType;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.catalog.procedures.BoundProcedure;
import org.apache.spark.sql.connector.catalog.procedures.ProcedureParameter;
import org.apache.spark.sql.connector.catalog.procedures.UnboundProcedure;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * A lake as a catalog of Spark: {@code spark.sql.catalog.NAME} is this class, {@code spark.sql.catalog.NAME.lake} says
 * which lake. Everything is asked of Python anew, so that all answers are of the lake as it is.
 */
public class LakeCatalog implements StagingTableCatalog, SupportsNamespaces, ProcedureCatalog {
  private Door door = null;

  /** Takes who answers, and what makes a scan's tasks hand over columns, where this Spark can have it. */
  public void remember(String session, Map options) {
    Door.remember(session, new HashMap(options));
  }

  public void connect(BiFunction answers, Function columns) {
    Door.answers = answers;
    Door.columns = columns;
  }

  /** Takes what makes scans that take more than columns and conditions; null for those that do not. */
  public void pushWith(BiFunction builders) {
    Door.hasLooked = true;
    Door.builders = builders;
  }

  /** Takes what makes tables that say which changes of columns a write may bring; null for those that do not. */
  public void evolveWith(BiFunction tables) {
    LakeRows.evolveWith(tables);
  }

  public void initialize(String name, CaseInsensitiveStringMap options) {
    door = new Door(name, new HashMap(options.asCaseSensitiveMap()));
  }

  public String name() {
    return door.catalog();
  }

  public String[] defaultNamespace() {
    return new String[] {"default"};
  }

  static Map named(Identifier id) {
    Map question = new HashMap();
    question.put("namespace", id.namespace());
    question.put("table", id.name());
    return question;
  }

  static Map of(String name, Object value) {
    Map question = new HashMap();
    question.put(name, value);
    return question;
  }

  // namespaces

  public String[][] listNamespaces() {
    List names = (List) door.ask("namespaces", new HashMap()).get("names");
    String[][] listed = new String[names.size()][];
    for (int i = 0; i < listed.length; i++) {
      listed[i] = new String[] {(String) names.get(i)};
    }
    return listed;
  }

  public String[][] listNamespaces(String[] namespace) throws NoSuchNamespaceException {
    if (namespace.length == 0) {
      return listNamespaces();
    }
    loadNamespaceMetadata(namespace);
    return new String[0][];
  }

  public boolean namespaceExists(String[] namespace) {
    if (namespace.length != 1) {
      return namespace.length == 0;
    }
    return ((List) door.ask("namespaces", new HashMap()).get("names")).contains(namespace[0]);
  }

  public Map loadNamespaceMetadata(String[] namespace) throws NoSuchNamespaceException {
    if (!namespaceExists(namespace)) {
      throw new NoSuchNamespaceException(namespace);
    }
    return new HashMap();
  }

  public void createNamespace(String[] namespace, Map properties) throws NamespaceAlreadyExistsException {
    if (namespaceExists(namespace)) {
      throw new NamespaceAlreadyExistsException(namespace);
    }
    Map question = of("namespace", namespace);
    question.put("properties", properties);
    door.ask("create_namespace", question);
  }

  public void alterNamespace(String[] namespace, NamespaceChange[] changes) {
    throw new UnsupportedOperationException("a namespace of a lake has no properties");
  }

  public boolean dropNamespace(String[] namespace, boolean cascade)
      throws NoSuchNamespaceException, NonEmptyNamespaceException {
    loadNamespaceMetadata(namespace);
    Map question = of("namespace", namespace);
    question.put("cascade", Boolean.valueOf(cascade));
    try {
      door.ask("drop_namespace", question);
    } catch (Refused error) {
      if (error.kind.equals("not_empty")) {
        throw new NonEmptyNamespaceException(namespace);
      }
      throw error;
    }
    return true;
  }

  // tables

  public Identifier[] listTables(String[] namespace) throws NoSuchNamespaceException {
    if (!namespaceExists(namespace)) {
      throw new NoSuchNamespaceException(namespace);
    }
    List names = (List) door.ask("tables", of("namespace", namespace)).get("names");
    Identifier[] listed = new Identifier[names.size()];
    for (int i = 0; i < listed.length; i++) {
      listed[i] = Identifier.of(namespace, (String) names.get(i));
    }
    return listed;
  }

  public Table loadTable(Identifier id) throws NoSuchTableException {
    return load(id, named(id));
  }

  public Table loadTable(Identifier id, String version) throws NoSuchTableException {
    Map question = named(id);
    question.put("version", version);
    return load(id, question);
  }

  public Table loadTable(Identifier id, long time) throws NoSuchTableException {
    Map question = named(id);
    question.put("time_us", Long.valueOf(time));
    return load(id, question);
  }

  Table load(Identifier id, Map question) throws NoSuchTableException {
    try {
      Map about = door.ask("load", question);
      return about.containsKey("id") ? (Table) LakeRows.of(door, about) : (Table) new LakeTable.Told(door, about);
    } catch (Refused error) {
      if (error.kind.equals("no_table")) {
        throw new NoSuchTableException(id);
      }
      throw error;
    }
  }

  static Map made(Identifier id, StructType schema, Transform[] partitioning, Map properties) {
    Map question = named(id);
    List parts = new ArrayList();
    for (int i = 0; i < partitioning.length; i++) {
      parts.add(partitioning[i].describe());
    }
    question.put("schema", schema.json());
    question.put("partitioning", parts);
    question.put("properties", properties);
    question.put("default_source", SQLConf.get().defaultDataSourceName());
    return question;
  }

  public Table createTable(Identifier id, StructType schema, Transform[] partitioning, Map properties)
      throws TableAlreadyExistsException {
    try {
      return LakeRows.of(door, door.ask("create", made(id, schema, partitioning, properties)));
    } catch (Refused error) {
      if (error.kind.equals("already_exists")) {
        throw new TableAlreadyExistsException(id);
      }
      throw error;
    }
  }

  public StagedTable stageCreate(Identifier id, StructType schema, Transform[] partitioning, Map properties)
      throws TableAlreadyExistsException {
    try {
      return staged(made(id, schema, partitioning, properties), "create");
    } catch (Refused error) {
      if (error.kind.equals("already_exists")) {
        throw new TableAlreadyExistsException(id);
      }
      throw error;
    }
  }

  public StagedTable stageReplace(Identifier id, StructType schema, Transform[] partitioning, Map properties)
      throws NoSuchTableException {
    try {
      return staged(made(id, schema, partitioning, properties), "replace");
    } catch (Refused error) {
      if (error.kind.equals("no_table")) {
        throw new NoSuchTableException(id);
      }
      throw error;
    }
  }

  public StagedTable stageCreateOrReplace(
      Identifier id, StructType schema, Transform[] partitioning, Map properties) {
    return staged(made(id, schema, partitioning, properties), "create or replace");
  }

  StagedTable staged(Map question, String mode) {
    question.put("mode", mode);
    return new LakeTable.Staged(door, door.ask("stage", question));
  }

  public Table alterTable(Identifier id, TableChange[] changes) throws NoSuchTableException {
    Map question = named(id);
    List told = new ArrayList();
    for (int i = 0; i < changes.length; i++) {
      told.add(told(changes[i]));
    }
    question.put("changes", told);
    try {
      return LakeRows.of(door, door.ask("alter", question));
    } catch (Refused error) {
      if (error.kind.equals("no_table")) {
        throw new NoSuchTableException(id);
      }
      throw error;
    }
  }

  static Map told(TableChange change) {
    Map told = of("change", change.getClass().getSimpleName());
    if (change instanceof TableChange$SetProperty) {
      told.put("name", ((TableChange$SetProperty) change).property());
      told.put("value", ((TableChange$SetProperty) change).value());
    } else if (change instanceof TableChange$RemoveProperty) {
      told.put("name", ((TableChange$RemoveProperty) change).property());
    } else if (change instanceof TableChange$AddColumn) {
      TableChange$AddColumn added = (TableChange$AddColumn) change;
      told.put("column", added.fieldNames());
      told.put("type", added.dataType().json());
      told.put("nullable", Boolean.valueOf(added.isNullable()));
      told.put("comment", added.comment());
      told.put("position", added.position() == null ? null : added.position().toString());
      told.put("default", added.defaultValue() == null ? null : added.defaultValue().toString());
    } else if (change instanceof TableChange$UpdateColumnType) {
      told.put("column", ((TableChange$UpdateColumnType) change).fieldNames());
      told.put("type", ((TableChange$UpdateColumnType) change).newDataType().json());
    } else if (change instanceof TableChange$UpdateColumnComment) {
      told.put("column", ((TableChange$UpdateColumnComment) change).fieldNames());
      told.put("comment", ((TableChange$UpdateColumnComment) change).newComment());
    } else if (change.getClass().getSimpleName().equals("ClusterBy")) {  // which not every Spark has
      told.put("columns", clustering(change));
    }
    return told;
  }

  static List clustering(TableChange change) {
    List columns = new ArrayList();
    try {
      Object given = change.getClass().getMethod("clusteringColumns", new Class[0]).invoke(change, new Object[0]);
      for (int i = 0; i < ((NamedReference[]) given).length; i++) {
        columns.add(String.join(".", ((NamedReference[]) given)[i].fieldNames()));
      }
    } catch (ReflectiveOperationException error) {
      throw new IllegalStateException(error);
    }
    return columns;
  }

  public boolean dropTable(Identifier id) {
    return drop(id, false);
  }

  public boolean purgeTable(Identifier id) {
    return drop(id, true);
  }

  boolean drop(Identifier id, boolean purge) {
    Map question = named(id);
    question.put("purge", Boolean.valueOf(purge));
    return ((Boolean) door.ask("drop", question).get("dropped")).booleanValue();
  }

  public void renameTable(Identifier from, Identifier to) throws NoSuchTableException, TableAlreadyExistsException {
    String[] namespace = to.namespace();
    boolean isWhole = namespace.length == 2 && namespace[0].equals(name());  // RENAME TO tidelake.obs.logs
    Map question = named(from);
    question.put("to", named(isWhole ? Identifier.of(new String[] {namespace[1]}, to.name()) : to));
    try {
      door.ask("rename", question);
    } catch (Refused error) {
      if (error.kind.equals("no_table")) {
        throw new NoSuchTableException(from);
      }
      if (error.kind.equals("already_exists")) {
        throw new TableAlreadyExistsException(to);
      }
      throw error;
    }
  }

  // procedures

  public Identifier[] listProcedures(String[] namespace) {
    List names = (List) door.ask("procedures", of("namespace", namespace)).get("names");
    Identifier[] listed = new Identifier[names.size()];
    for (int i = 0; i < listed.length; i++) {
      listed[i] = Identifier.of(namespace, (String) names.get(i));
    }
    return listed;
  }

  public UnboundProcedure loadProcedure(Identifier id) {
    return new LakeProcedure(door, id);
  }
}

/** Upkeep that Python does, and whose report is a row. It is asked for when it is bound, so that errors are shown. */
class LakeProcedure implements UnboundProcedure, BoundProcedure {
  private final Door door;
  private final Identifier id;
  private Map about = null;

  LakeProcedure(Door door, Identifier id) {
    this.door = door;
    this.id = id;
  }

  public String name() {
    return id.name();
  }

  public String description() {
    return (String) about().get("description");
  }

  Map about() {
    if (about == null) {
      Map question = LakeCatalog.of("namespace", id.namespace());
      question.put("procedure", id.name());
      about = door.ask("procedure", question);
    }
    return about;
  }

  public BoundProcedure bind(StructType given) {
    about();
    return this;
  }

  public boolean isDeterministic() {
    return false;
  }

  public ProcedureParameter[] parameters() {
    List given = (List) about().get("parameters");
    ProcedureParameter[] parameters = new ProcedureParameter[given.size()];
    for (int i = 0; i < parameters.length; i++) {
      Map each = (Map) given.get(i);
      DataType type = DataType.fromDDL((String) each.get("type"));
      parameters[i] = each.get("default") == null
          ? ProcedureParameter.in((String) each.get("name"), type).build()
          : ProcedureParameter.in((String) each.get("name"), type)
              .defaultValue((String) each.get("default")).build();
    }
    return parameters;
  }

  public Iterator call(InternalRow input) {
    ProcedureParameter[] parameters = parameters();
    List values = new ArrayList();
    for (int i = 0; i < parameters.length; i++) {
      Object value = input.isNullAt(i) ? null : input.get(i, parameters[i].dataType());
      values.add(value == null || value instanceof Boolean || value instanceof Number ? value : value.toString());
    }
    Map question = LakeCatalog.of("procedure", about().get("procedure"));
    question.put("arguments", values);
    return Collections.singletonList(new ToldScan(door.ask("call", question))).iterator();
  }
}
