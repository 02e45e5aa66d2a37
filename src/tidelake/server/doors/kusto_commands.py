"""Answer the commands of Kusto that begin with a dot: what clients ask by themselves, and those that make tables.

``.show`` lists databases, tables, schemas and what runs; ``.create table``, ``.create-merge table``, ``.drop table``
and ``.ingest inline`` change tables, for tokens that may. What Kusto has and a lake has not (functions, mappings,
external tables) is listed as none. It does not answer queries: see ``kusto``.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeAlias

import orjson

from tidelake.catalog.protocol import parse_table_name
from tidelake.errors import AlreadyExistsError, NotFoundError, QueryError
from tidelake.model.times import time_text
from tidelake.server.doors.base import Asked
from tidelake.server.doors.kusto_rows import ingested
from tidelake.write.create import create_table

NAMES = {
    "string": "System.String",
    "long": "System.Int64",
    "int": "System.Int32",
    "real": "System.Double",
    "bool": "System.SByte",
    "datetime": "System.DateTime",
    "timespan": "System.TimeSpan",
    "dynamic": "System.Object",
    "decimal": "System.Data.SqlTypes.SqlDecimal",
    "guid": "System.Guid",
}
_TYPES = {
    "string": "string", "long": "long", "int": "int", "real": "real", "double": "real", "bool": "bool",
    "boolean": "bool", "datetime": "timestamp", "date": "timestamp", "dynamic": "dynamic", "timespan": "string",
    "time": "string", "guid": "string", "uuid": "string", "decimal": "decimal(38,18)",
}  # fmt: skip

Commanded: TypeAlias = tuple[list[tuple[str, str]], list[list[Any]]]


async def commanded(text: str, asked: Asked, database: str) -> Commanded:
    """Return the answer to a command: columns and rows."""
    for pattern, role, change in _CHANGES:
        if found := re.fullmatch(pattern, text.strip().rstrip(";"), re.IGNORECASE | re.DOTALL):
            asked.grant.check(role)
            return await change(asked, found, database)
    words = " ".join(text.split()).rstrip(";").lower()
    for pattern, answer in _COMMANDS:
        if found := re.fullmatch(pattern, words):
            look = partial(answer, asked, found, database)
            told: Commanded = await asked.questions.looked(asked.grant, look)
            return told
    raise QueryError(f"the command is not known: {words[:80]}", kind="unknown_command")


def _databases(asked: Asked, found: re.Match[str], database: str) -> Commanded:
    names = sorted({name.partition(".")[0] for name in _tables(asked)} | {asked.call.namespace})
    columns = [("DatabaseName", "string"), ("PersistentStorage", "string"), ("Version", "string"),
               ("IsCurrent", "bool"), ("DatabaseAccessMode", "string"), ("PrettyName", "string")]  # fmt: skip
    return columns, [[name, "", "v1.0", name == database, "ReadWrite", ""] for name in names]


def _tables(asked: Asked) -> list[str]:
    return [name for name in asked.lake.tables() if asked.may_see(name)]


def _own_tables(asked: Asked, database: str) -> list[tuple[str, str]]:
    """Return the tables of a database as its name and theirs."""
    parts = [tuple(name.partition(".")[::2]) for name in _tables(asked)]
    return [(own, name) for own, name in parts if own == database]


def _show_tables(asked: Asked, found: re.Match[str], database: str) -> Commanded:
    columns = [("TableName", "string"), ("DatabaseName", "string"), ("Folder", "string"), ("DocString", "string")]
    return columns, [[name, own, "", ""] for own, name in _own_tables(asked, database)]


def _found_table(asked: Asked, found: re.Match[str], database: str) -> str:
    """Return the full name of the table that a command names, in whatever case."""
    name = found["table"].strip("[]'\"")
    full = next((f"{own}.{each}" for own, each in _own_tables(asked, database) if each.lower() == name), None)
    if full is None:
        raise QueryError(f"there is no table {name[:80]}", kind="unknown_table")
    return full


def _show_schema(asked: Asked, found: re.Match[str], database: str) -> Commanded:
    told = _schema_of(asked, _found_table(asked, found, database))
    columns = [("TableName", "string"), ("Schema", "string"), ("DatabaseName", "string"), ("Folder", "string"),
               ("DocString", "string")]  # fmt: skip
    is_json = found.group(0).endswith("as json")
    plain = ",".join(f"{each['Name']}:{each['CslType']}" for each in told["OrderedColumns"])
    return columns, [[told["Name"], orjson.dumps(told).decode() if is_json else plain, database, "", ""]]


def _schema_of(asked: Asked, full: str) -> dict[str, Any]:
    ordered = []
    for column in asked.lake.table(full).schema:
        kind = {"timestamp": "datetime"}.get(column.type.kind, column.type.kind)
        kind = kind if kind in NAMES else "dynamic"
        ordered.append({"Name": column.name, "Type": NAMES[kind], "CslType": kind})
    return {"Name": full.partition(".")[2], "OrderedColumns": ordered}


def _all_schemas(asked: Asked, found: re.Match[str], database: str) -> Commanded:
    databases: dict[str, Any] = {}
    for full in _tables(asked):
        own = full.partition(".")[0]
        told = databases.setdefault(
            own, {"Name": own, "Tables": {}, "Functions": {}, "MajorVersion": 1, "MinorVersion": 0}
        )
        schema = _schema_of(asked, full)
        told["Tables"][schema["Name"]] = {**schema, "Folder": "", "DocString": ""}
    return [("ClusterSchema", "string")], [[orjson.dumps({"Databases": databases}).decode()]]


def _schema_rows(asked: Asked, found: re.Match[str], database: str) -> Commanded:
    """List databases, their tables and the columns of these, a row for each; of one database if it is named."""
    named = (found["database"] or "").strip("[]'\"")
    columns = [(name, "string") for name in ("DatabaseName", "TableName", "ColumnName", "ColumnType")]
    columns += [("IsDefaultTable", "bool"), ("IsDefaultColumn", "bool")]
    columns += [(name, "string") for name in ("PrettyName", "Version", "Folder", "DocString")]
    rows: list[list[Any]] = []
    seen: set[str] = set()

    def add(own: str, table: str | None = None, column: str | None = None, kind: str | None = None) -> None:
        rows.append([own, table, column, kind, False, False, None, "v1.0" if table is None else None, None, None])

    for full in _tables(asked):
        own, _, table = full.partition(".")
        if named and own.lower() != named:
            continue
        if own not in seen:
            seen.add(own)
            add(own)
        add(own, table)
        for each in _schema_of(asked, full)["OrderedColumns"]:
            add(own, table, each["Name"], each["Type"])
    return columns, rows


def _version(asked: Asked, found: re.Match[str], database: str) -> Commanded:
    columns = [
        ("BuildVersion", "string"),
        ("BuildTime", "datetime"),
        ("ServiceType", "string"),
        ("ProductVersion", "string"),
    ]
    return columns, [["1.0.0.0", "2026-01-01T00:00:00Z", "Engine", "tidelake"]]


def _principal(asked: Asked, found: re.Match[str], database: str) -> Commanded:
    return [("PrincipalName", "string")], [[asked.grant.name]]


def _show_columns(asked: Asked, found: re.Match[str], database: str) -> Commanded:
    columns = [("AttributeName", "string"), ("AttributeType", "string"), ("ExtentsCount", "long")]
    told = _schema_of(asked, _found_table(asked, found, database))["OrderedColumns"]
    return columns, [[each["Name"], each["Type"], 0] for each in told]


def _show_details(asked: Asked, found: re.Match[str], database: str) -> Commanded:
    full = _found_table(asked, found, database)
    totals = asked.table(full).snapshot.totals
    columns = [("TableName", "string"), ("DatabaseName", "string"), ("TotalExtents", "long"),
               ("TotalExtentSize", "real"), ("TotalRowCount", "long")]  # fmt: skip
    rows = totals.rows + totals.hot_rows
    return columns, [[full.partition(".")[2], database, totals.extents, float(totals.bytes), rows]]


def _nothing(asked: Asked, found: re.Match[str], database: str) -> Commanded:
    return [("Name", "string"), ("Folder", "string"), ("DocString", "string")], []


def _no_resources(asked: Asked, found: re.Match[str], database: str) -> Commanded:
    """Say that there are no queues: rows are taken by streaming alone."""
    return [("ResourceTypeName", "string"), ("StorageRoot", "string")], []


def _no_token(asked: Asked, found: re.Match[str], database: str) -> Commanded:
    return [("AuthorizationContext", "string")], [[""]]


def _show_queries(asked: Asked, found: re.Match[str], database: str) -> Commanded:
    columns = [("ClientActivityId", "string"), ("Text", "string"), ("User", "string"), ("StartedOn", "datetime"),
               ("State", "string")]  # fmt: skip
    return columns, [
        [each.id, each.text, each.name, time_text(int(each.began_s * 1e6) * 1000), "InProgress"]
        for each in asked.questions.running.seen_by(asked.grant)
    ]


def _cancel(asked: Asked, found: re.Match[str], database: str) -> Commanded:
    stopped = asked.questions.running.stop(found["id"], asked.grant)
    return [("ClientRequestId", "string"), ("ReasonPhrase", "string")], [[stopped, "cancelled"]]


def _show_cluster(asked: Asked, found: re.Match[str], database: str) -> Commanded:
    return [("IsHealthy", "bool"), ("MachinesTotal", "int")], [[True, 1]]


async def _create_table(asked: Asked, found: re.Match[str], database: str) -> Commanded:
    """Make a table; of one that is there, only what is missing is added."""
    full = _full_name(asked, found, database, "write")
    asked.grant.check("write", full)
    columns = _declared(found["columns"])
    times = [name for name, kind in columns.items() if kind == "timestamp"]

    def make() -> None:
        try:
            create_table(asked.lake.catalog, full, columns, time=times[0] if times else None)
        except AlreadyExistsError:
            table = asked.lake.table(full)
            for name, kind in columns.items():
                if name not in table.schema:
                    table.add_column(name, kind)

    await asked.questions.looked(asked.grant, make)
    told = _schema_of(asked, full)
    names = [("TableName", "string"), ("Schema", "string"), ("DatabaseName", "string"), ("Folder", "string"),
             ("DocString", "string")]  # fmt: skip
    return names, [[told["Name"], orjson.dumps(told).decode(), database, "", ""]]


def _declared(text: str) -> dict[str, str]:
    """Read columns as they are declared, ``name:type`` each."""
    columns: dict[str, str] = {}
    for part in text.split(","):
        name, _, kind = (each.strip() for each in part.strip().rpartition(":"))
        own = _TYPES.get(kind.lower())
        if not name or own is None:
            raise QueryError(f"not a column: {part.strip()[:80]}", kind="bad_column")
        columns[name.strip("[]'\"")] = own
    return columns


async def _drop_table(asked: Asked, found: re.Match[str], database: str) -> Commanded:
    full = _full_name(asked, found, database, "admin")
    try:
        await asked.questions.looked(asked.grant, partial(asked.lake.drop_table, full))
    except NotFoundError:
        if not found["ifexists"]:
            raise
    return _show_tables(asked, found, database)


async def _ingest_inline(asked: Asked, found: re.Match[str], database: str) -> Commanded:
    """Append rows that the command itself has."""
    full = _full_name(asked, found, database, "write")
    parts = [part.partition("=") for part in (found["options"] or "").split(",")]
    options = {name.strip().lower(): value.strip().strip("'\"") for name, _, value in parts}
    body = found["rows"].lstrip(" \t").removeprefix("\r").removeprefix("\n").encode()
    rows = await ingested(asked, full, options.get("format", "csv").lower(), body, key=None, options=options)
    columns = [("ExtentId", "guid"), ("ItemLoaded", "string"), ("Duration", "timespan"), ("HasErrors", "bool"),
               ("OperationId", "guid"), ("ConsumedRecordsCount", "long")]  # fmt: skip
    nobody = "00000000-0000-0000-0000-000000000000"
    return columns, [[nobody, f"inline:{full}", "00:00:00", False, nobody, rows]]


def _full_name(asked: Asked, found: re.Match[str], database: str, role: str) -> str:
    name = found["table"].strip("[]'\"")
    full = ".".join(parse_table_name(name if "." in name else f"{database}.{name}"))
    asked.grant.check(role, full)
    return full


_COMMANDS: tuple[tuple[str, Callable[[Asked, re.Match[str], str], Commanded]], ...] = (
    (r"\.show databases(?: details)?", _databases),
    (r"\.show databases schema as json", _all_schemas),
    (r"\.show database(?: \S+)? schema as json", _all_schemas),
    (r"\.show schema as json", _all_schemas),
    (r"\.show (?:database(?: (?P<database>\S+))?|databases) schema", _schema_rows),
    (r"\.show tables(?: details)?", _show_tables),
    (r"\.show table (?P<table>\S+) schema as json", _show_schema),
    (r"\.show table (?P<table>\S+) cslschema", _show_schema),
    (r"\.show table (?P<table>\S+) schema", _show_schema),
    (r"\.show table (?P<table>\S+)", _show_columns),
    (r"\.show table (?P<table>\S+) details", _show_details),
    (r"\.show version", _version),
    (r"\.show (?:functions|materialized-views|external tables|continuous-exports|ingestion mappings)", _nothing),
    (r"\.show (?:database|table) \S+ ingestion .*mappings", _nothing),
    (r"\.show queries|\.show running queries", _show_queries),
    (r"\.show diagnostics|\.show cluster", _show_cluster),
    (r"\.get ingestion resources", _no_resources),
    (r"\.get kusto identity token", _no_token),
    (r"\.cancel query ['\"](?P<id>\w+)['\"]", _cancel),
    (r"\.show current principal|\.show principal access.*", _principal),
)

_Change: TypeAlias = Callable[[Asked, "re.Match[str]", str], Awaitable[Commanded]]

_NAME = r"(?P<table>[\w.-]+|\['[^']+'\]|\[\"[^\"]+\"\])"
_CHANGES: tuple[tuple[str, str, _Change], ...] = (
    (rf"\.create(?:-merge)?\s+table\s+{_NAME}\s*\((?P<columns>[^)]*(?:\([^)]*\)[^)]*)*)\)\s*(?:with\s*\(.*\))?",
     "write", _create_table),
    (rf"\.drop\s+table\s+{_NAME}(?P<ifexists>\s+ifexists)?", "admin", _drop_table),
    (rf"\.ingest\s+inline\s+into\s+table\s+{_NAME}\s*(?:with\s*\((?P<options>[^)]*)\))?\s*<\|(?P<rows>.*)",
     "write", _ingest_inline),
)  # fmt: skip
