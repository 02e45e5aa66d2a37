"""Read the text cases of KQL, and compare results with what they expect.

A case is ``=== name``, a line ``//`` with the reason, the query, ``---`` and what is expected: a line of
``name:type`` for the columns, then a JSON array for each row. ``--ordered`` before the query means that the order of
rows counts. After ``--- error`` stand parts of the message. It does not run queries.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from tidelake.errors import NotFoundError
from tidelake.model.schema import DataType

FOLDER = Path(__file__).resolve().parents[1] / "cases" / "kql"
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Case:
    """One case: its query, and what it gives or which error it meets."""

    name: str
    reason: str
    query: str
    ordered: bool
    header: str
    rows: tuple[str, ...]
    error: tuple[str, ...]


def read_cases(folder: Path = FOLDER) -> Iterator[Case]:
    """Read every case of a folder."""
    for path in sorted(folder.glob("*.kql")):
        for block in path.read_text().split("=== ")[1:]:
            yield _case(path.stem, block)


def _case(stem: str, block: str) -> Case:
    head, _, expected = block.partition("\n--- error\n")
    is_error = bool(expected)
    if not is_error:
        head, _, expected = block.partition("\n---\n")
    name, reason, *query = head.split("\n")
    ordered = query[0] == "--ordered"
    lines = [line for line in expected.split("\n") if line]
    return Case(
        f"{stem}: {name}",
        reason.removeprefix("// "),
        "\n".join(query[ordered:]),
        ordered,
        "" if is_error or not lines else lines[0],
        () if is_error else tuple(lines[1:]),
        tuple(lines) if is_error else (),
    )


_T = "2026-01-01T{}+00:00"
TABLES: Mapping[str, tuple[Mapping[str, str], Sequence[tuple[Any, ...]]]] = {
    "logs": (
        {"ts": "timestamp", "service": "string", "level": "string", "message": "string", "status": "int",
         "latency": "real", "note": "string", "attributes": "dynamic"},
        [
            (_T.format("00:05:00"), "auth", "error", "login timeout for ada", 500, 120.5, "retry later",
             '{"bytes":10,"http":{"method":"GET"}}'),
            (_T.format("00:15:00"), "auth", "info", "login ok", 200, 12.0, "", '{"bytes":20,"http":{"method":"POST"}}'),
            (_T.format("00:45:00"), "core", "info", "started", 200, 3.5, None, '{"bytes":5}'),
            (_T.format("01:00:00"), "core", "error", "disk timeout", 503, 900.0, "", '{"http.status":503}'),
            (_T.format("01:30:00"), "auth", "warn", "slow", 200, 450.0, "no retry",
             '{"bytes":7,"http":{"method":"GET"}}'),
            (_T.format("03:00:00"), "web", "fatal", "gone", None, None, None, None),
        ],
    ),
    "users": (
        {"id": "long", "name": "string", "team": "string"},
        [(1, "ada", "core"), (2, "grace", "auth"), (3, "alan", "web")],
    ),
    "people.teams": ({"team": "string"}, [("core",), ("auth",)]),
}  # fmt: skip


class CaseTables:
    """The tables that all cases share."""

    def names(self) -> Sequence[str]:
        return list(TABLES)

    def columns(self, name: str) -> Mapping[str, DataType]:
        if name not in TABLES:
            raise NotFoundError("no such table", table=name)
        return {column: DataType.parse(kind) for column, kind in TABLES[name][0].items()}


def arrow_table(name: str) -> pa.Table:
    """Return a shared table's rows; a dynamic value is JSON text."""
    columns, rows = TABLES[name]
    kinds = {"dynamic": pa.string(), "timestamp": pa.timestamp("us", tz="UTC")}
    arrays = []
    for at, kind in enumerate(columns.values()):
        values = [row[at] for row in rows]
        if kind == "timestamp":
            values = [datetime.fromisoformat(value) for value in values]
        arrays.append(pa.array(values, kinds.get(kind) or DataType.parse(kind).arrow))
    return pa.table(arrays, names=list(columns))


def shown(value: Any, kind: str) -> Any:
    """Return a result's value as JSON says it, alike for both engines."""
    if value is None:
        return None
    if kind == "dynamic":
        return _plain(json.loads(value) if isinstance(value, str) else value)
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return _plain(value)


def _plain(value: Any) -> Any:
    match value:
        case float():
            return repr(value) if not math.isfinite(value) else round(value, 9)
        case list():
            return [_plain(item) for item in value]
        case dict():
            return {key: _plain(item) for key, item in sorted(value.items())}
        case _:
            return value


def texts_of(rows: Sequence[Sequence[Any]], *, ordered: bool) -> list[str]:
    """Return rows as lines of JSON, sorted unless their order counts."""
    lines = [json.dumps(list(row), ensure_ascii=False, sort_keys=True) for row in rows]
    return lines if ordered else sorted(lines)
