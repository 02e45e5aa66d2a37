"""Explain what the scans of a frame would read, and what was pruned.

Spark's own ``explain`` shows the columns and the filters that reached a table; this shows what they left of its extents
and blocks. It does not run the frame.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from tidelake.errors import UnavailableError
from tidelake.spark.filters import translate
from tidelake.spark.lines import pushed as d
from tidelake.spark.narrowing import used_keys
from tidelake.spark.options import KEYS, known_options
from tidelake.spark.places import open_table
from tidelake.spark.reading import planned
from tidelake.spark.source import NAME
from tidelake.spark.types import spark_names

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_COMPARISONS = {
    "EqualTo": d.EqualTo, "EqualNullSafe": d.EqualNullSafe, "GreaterThan": d.GreaterThan,
    "GreaterThanOrEqual": d.GreaterThanOrEqual, "LessThan": d.LessThan, "LessThanOrEqual": d.LessThanOrEqual,
    "StringStartsWith": d.StringStartsWith, "StringContains": d.StringContains,
}  # fmt: skip
CATALOG_SCANS = ("LakeScan", "PushedScan")  # of a table of a catalog: they say by themselves what they read
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def explain(frame: DataFrame) -> str:
    """Draw the cascade of every scan of a table that a frame has, first to last."""
    if not hasattr(frame, "_jdf"):
        raise UnavailableError(
            "a connect client has no plan at hand to explain: read with spark's own explain", kind="no_plan"
        )
    plan = frame._jdf.queryExecution().optimizedPlan()
    return "\n".join(_explained(scan) for scan in _scans(plan))


def _scans(node: Any) -> Iterator[Any]:
    if node.getClass().getSimpleName() == "DataSourceV2ScanRelation":
        scan = node.scan()
        kind = scan.getClass().getSimpleName()
        if kind in CATALOG_SCANS or (kind in ("PythonScan", "TableScan") and _field(scan, "shortName").lower() == NAME):
            yield scan
    children = node.children()
    for at in range(children.size()):
        yield from _scans(children.apply(at))


def _explained(scan: Any) -> str:
    if scan.getClass().getSimpleName() in CATALOG_SCANS:
        return _plan(dict(scan.options()), scan.readSchema().fieldNames(), ())
    return _plan(
        dict(_field(scan, "options").asCaseSensitiveMap()),
        _field(scan, "outputSchema").fieldNames(),
        _field(scan, "supportedFilters"),
    )


def _plan(given: dict[str, str], columns: Iterable[str], pushed: Iterable[Any]) -> str:
    options = known_options(given, "batch")
    table = open_table(options).pinned()
    filters = [made for each in pushed if (made := _filter(each)) is not None]
    own = spark_names(table.schema)
    used = used_keys(options.get(KEYS), table.schema)
    narrow = [f"  of {column} only {', '.join(keys)}, where keys are stored apart" for column, keys in used.items()]
    plan = planned(table, options, [own[name] for name in columns], translate(filters, table.schema)[0])
    return "\n".join([plan.explain(), *narrow])


def _field(of: Any, name: str) -> Any:
    kind = of.getClass()
    field = (kind.getSuperclass() if kind.getSimpleName() == "TableScan" else kind).getDeclaredField(name)
    field.setAccessible(True)
    return field.get(of)


def _filter(each: Any) -> d.Filter | None:
    """Return one of the JVM's filters as Python's; None for a sort that only Spark itself knows."""
    name = each.getClass().getSimpleName()
    if name == "Not":
        inner = _filter(each.child())
        return None if inner is None else d.Not(inner)
    if name in ("IsNull", "IsNotNull"):
        attribute = (each.attribute(),)
        return d.IsNull(attribute) if name == "IsNull" else d.IsNotNull(attribute)
    if name == "In":
        return d.In((each.attribute(),), tuple(_value(value) for value in each.values()))
    kind = _COMPARISONS.get(name)
    return None if kind is None else kind((each.attribute(),), _value(each.value()))


def _value(value: Any) -> Any:
    if not hasattr(value, "getClass"):
        return value
    match value.getClass().getSimpleName():
        case "Date" | "LocalDate":
            return date.fromisoformat(str(value.toString()))
        case "LocalDateTime":
            return datetime.fromisoformat(str(value.toString()))
        case "BigDecimal" | "Decimal":
            return Decimal(str(value.toString()))
    instant = value.toInstant() if value.getClass().getSimpleName() == "Timestamp" else value
    return _EPOCH + timedelta(seconds=instant.getEpochSecond(), microseconds=instant.getNano() // 1000)
