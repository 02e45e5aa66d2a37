"""Do upkeep by ``CALL tidelake.system.…``: each procedure is a function of a lake, and its report is a row.

They run in the driver's Python, as the methods of the same names do. It does not know Spark's rows: see ``told``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from pyspark.sql import types as t

from tidelake.errors import InvalidInputError, NotFoundError
from tidelake.handle.table_handle import TableHandle
from tidelake.maintain.collect import collect
from tidelake.maintain.compact import compact
from tidelake.maintain.delete import delete
from tidelake.maintain.expire import expire
from tidelake.maintain.restore import restore, undo
from tidelake.model.lexer import did_you_mean
from tidelake.spark.catalog.names import lake_of, table_of
from tidelake.spark.catalog.told import told
from tidelake.write.flush import flush

NAMESPACE = "system"


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter, with its type and its default as Spark's SQL writes them."""

    name: str
    type: str = "string"
    default: str | None = None


@dataclass(frozen=True, slots=True)
class Procedure:
    """What can be called, and what it does."""

    does: Callable[..., Mapping[str, int]]
    description: str
    parameters: tuple[Parameter, ...] = ()


def list_procedures(question: Mapping[str, Any]) -> dict[str, Any]:
    return {"names": sorted(PROCEDURES) if question["namespace"] == [NAMESPACE] else []}


def describe(question: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a procedure takes."""
    name = question["procedure"].lower()
    if [each.lower() for each in question["namespace"]] != [NAMESPACE] or name not in PROCEDURES:
        close = did_you_mean(name, list(PROCEDURES)) or f"; there are {', '.join(sorted(PROCEDURES))} in {NAMESPACE}"
        raise NotFoundError(f"no such procedure{close}", name=".".join([*question["namespace"], name]))
    found = PROCEDURES[name]
    parameters = [{"name": each.name, "type": each.type, "default": each.default} for each in found.parameters]
    return {"procedure": name, "description": found.description, "parameters": parameters}


def call(question: Mapping[str, Any]) -> dict[str, Any]:
    """Run a procedure, and return its report as a row."""
    report = PROCEDURES[question["procedure"]].does(question, *question["arguments"])
    return told(t.StructType([t.StructField(name, t.LongType()) for name in report]), [list(report.values())])


def _table(asked: Mapping[str, Any], name: str | None) -> TableHandle:
    if not name:
        raise InvalidInputError("name the table, 'obs.logs'", kind="no_table_named")
    return table_of(asked, name)


def _numbers(report: Any) -> dict[str, int]:
    """Return the numbers of a report, by their names."""
    found = {each.name: getattr(report, each.name) for each in fields(report)}
    return {name: int(value) for name, value in found.items() if isinstance(value, int)}


def _compact(asked: Mapping[str, Any], table: str) -> Mapping[str, int]:
    return _numbers(compact(_table(asked, table)))


def _expire(asked: Mapping[str, Any], table: str, older_than: str | None, keep_last: int) -> Mapping[str, int]:
    return _numbers(expire(_table(asked, table), older_than, keep_last=keep_last))


def _collect(asked: Mapping[str, Any], dry_run: bool, abandoned_after: str, orphan_after: str) -> Mapping[str, int]:
    report = collect(lake_of(asked), dry_run=dry_run, abandoned_after=abandoned_after, orphan_after=orphan_after)
    total, left = report.total, sum(report.left.values())
    return {"objects": total.objects, "bytes": total.bytes, "left": left, "tables": report.tables}


def _delete(asked: Mapping[str, Any], table: str, where: str, purge: bool) -> Mapping[str, int]:
    if not (where or "").strip():
        raise InvalidInputError("a delete needs a condition; TRUNCATE TABLE deletes every row", table=table)
    report = delete(_table(asked, table), where, purge=purge)
    found = _numbers(report)
    return found if report.purged is None else found | {"objects": report.purged.objects}


def _flush(asked: Mapping[str, Any], table: str) -> Mapping[str, int]:
    return _numbers(flush(_table(asked, table)))


def _undo(asked: Mapping[str, Any], table: str, snapshot: int) -> Mapping[str, int]:
    return _numbers(undo(_table(asked, table), snapshot))


def _restore(asked: Mapping[str, Any], table: str, snapshot: int) -> Mapping[str, int]:
    return _numbers(restore(_table(asked, table), snapshot=snapshot))


_OF_TABLE = (Parameter("table"),)
_AT_SNAPSHOT: Sequence[Parameter] = (*_OF_TABLE, Parameter("snapshot", "bigint"))
PROCEDURES: dict[str, Procedure] = {
    "compact": Procedure(_compact, "write small and overlapping extents again as few", _OF_TABLE),
    "flush": Procedure(_flush, "turn hot rows into an extent", _OF_TABLE),
    "expire": Procedure(
        _expire,
        "forget snapshots that are older than a duration, or than the table's history",
        (*_OF_TABLE, Parameter("older_than", default="NULL"), Parameter("keep_last", "int", "1")),
    ),
    "collect": Procedure(
        _collect,
        "delete the objects that nothing can reach",
        (
            Parameter("dry_run", "boolean", "false"),
            Parameter("abandoned_after", default="'1d'"),
            Parameter("orphan_after", default="'1d'"),
        ),
    ),
    "delete": Procedure(
        _delete,
        "delete the rows that match a condition, as Table.delete takes it",
        (*_OF_TABLE, Parameter("where"), Parameter("purge", "boolean", "false")),
    ),
    "undo": Procedure(_undo, "take back what one snapshot added", tuple(_AT_SNAPSHOT)),
    "restore": Procedure(_restore, "publish an older snapshot as the newest", tuple(_AT_SNAPSHOT)),
}
