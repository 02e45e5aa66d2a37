"""Measure KQL against real queries, and write the reference: ``python -m tools.kql_corpus``.

Each query of the corpus is parsed, then planned. The corpus has no schemas, so a table's columns are those that the
queries name: a table begins with none, and a name that the planner does not know becomes a column of the tables that
feed that place, until the plan stands or the same name is unknown again. A column's type is guessed from its name. It
does not run queries.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tidelake.errors import NotFoundError, QueryError
from tidelake.query.kql import lower, parse
from tidelake.schema import DataType

CORPUS = Path(__file__).resolve().parents[2] / "shared" / "data" / "kql" / "queries.jsonl.zst"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
MAX_GUESSES = 400  # names that one query may make us guess

_TIMES = re.compile(r"(time|timestamp|date|datetime|TimeGenerated|_t)$|^(TimeGenerated|timestamp)", re.IGNORECASE)
_NUMBERS = re.compile(r"(count|bytes|port|_d|size|length|duration|eventid|score|amount|total|number)$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one query fared: None is success, else the message."""

    path: str
    parse_error: str | None
    plan_error: str | None
    plan_kind: str


class GuessedTables:
    """Tables whose columns are learned from use."""

    def __init__(self, default: str) -> None:
        self.default = default
        self.known: dict[str, dict[str, DataType]] = {}

    def names(self) -> Sequence[str]:
        return list(self.known)

    def columns(self, name: str) -> Mapping[str, DataType]:
        if name not in self.known:
            raise NotFoundError("no such table", table=name)
        return self.known[name]

    def add_table(self, name: str) -> bool:
        if name in self.known or not name:
            return False
        self.known[name] = {}
        return True

    def add_column(self, name: str, tables: Sequence[str]) -> bool:
        """Give the tables a column; say whether any did not have it."""
        fresh = [table for table in tables if table in self.known and name not in self.known[table]]
        for table in fresh:
            self.known[table][name] = DataType.parse(self._type(name))
        return bool(fresh)

    def _type(self, name: str) -> str:
        if _TIMES.search(name):
            return "timestamp"
        return "long" if _NUMBERS.search(name) and self.default == "string" else self.default


def queries(path: Path) -> Iterator[tuple[str, str]]:
    """Give the path and text of each query."""
    import pyarrow as pa

    with pa.CompressedInputStream(pa.OSFile(str(path)), "zstd") as stream:
        for line in stream.read().decode().splitlines():
            if line:
                entry = json.loads(line)
                yield entry["path"], entry["query"]


def judge(path: str, text: str) -> Outcome:
    """Parse and plan one query."""
    try:
        parse(text)
    except QueryError as error:
        return Outcome(path, str(error), str(error), "syntax")
    first: QueryError | None = None
    for default in ("string", "dynamic"):
        error = plan(text, GuessedTables(default))
        if error is None:
            return Outcome(path, None, None, "")
        first = first or error
    assert first is not None
    return Outcome(path, None, str(first), first.kind)


def plan(text: str, tables: GuessedTables) -> QueryError | None:
    """Lower a query, learning tables and columns as they are missed; give the error that remains."""
    for _ in range(MAX_GUESSES):
        try:
            lower(text, tables, now=NOW)
            return None
        except QueryError as error:
            if not _learned(error, tables):
                return error
    return QueryError("too many names to guess", kind="guesses")


def _learned(error: QueryError, tables: GuessedTables) -> bool:
    name = str(error.facts.get("name", ""))
    if error.kind == "unknown_table":
        return tables.add_table(name)
    if error.kind == "unknown_name":
        feeding = [table for table in str(error.facts.get("tables", "")).split(",") if table]
        return tables.add_column(name, feeding)
    return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", type=Path, default=CORPUS)
    parser.add_argument("--failures", type=int, default=0, help="show this many failures")
    parser.add_argument("--every", type=int, default=1, help="take every n-th query")
    parser.add_argument("--skip", type=int, default=0)
    arguments = parser.parse_args()
    outcomes = [judge(path, text) for path, text in list(queries(arguments.corpus))[:: arguments.every]]
    parsed = sum(outcome.parse_error is None for outcome in outcomes)
    planned = sum(outcome.plan_error is None for outcome in outcomes)
    print(
        f"{len(outcomes)} queries: {parsed} parse ({parsed / len(outcomes):.1%}), {planned} plan ({planned / len(outcomes):.1%})"
    )
    failures = [o for o in outcomes if o.plan_error and not o.parse_error]
    for message, count in Counter(_short(o) for o in failures).most_common(60):
        print(f"{count:5} {message}")
    for outcome in failures[arguments.skip : arguments.skip + arguments.failures]:
        print(outcome.path, outcome.plan_error, sep="\n")


def _short(outcome: Outcome) -> str:
    line = (outcome.plan_error or "").split("\n")[0]
    return f"{outcome.plan_kind}: {re.sub(r', did you mean.*', '', line)[:110]}"


if __name__ == "__main__":
    main()
