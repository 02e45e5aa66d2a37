"""Run the text cases of SQL on both engines.

A case is a comment that says why, a query up to its semicolon, and what it gives as comments: the names of the columns,
then a line a row, cells parted by `` | ``. Rows are compared in order when the query orders them. A line
``-- error: …`` is instead part of the message that the query is refused with. It does not need Python to add a case.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tidelake import Lake, TidelakeError

CASES = Path(__file__).parents[1] / "cases" / "sql"
NULL = "∅"


@dataclass(frozen=True, slots=True)
class Case:
    """One query, why it is asked, and what it gives."""

    name: str
    reason: str
    text: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    error: str | None = None

    @property
    def is_ordered(self) -> bool:
        return re.search(r"order\s+by[^()]*$", self.text, re.IGNORECASE) is not None


def read_cases(folder: Path = CASES) -> list[Case]:
    """Read every case of every file."""
    return [case for path in sorted(folder.glob("*.sql")) for case in _cases_of(path)]


def _cases_of(path: Path) -> list[Case]:
    found = []
    for number, block in enumerate(re.split(r"\n\s*\n", path.read_text().strip()), start=1):
        match = re.fullmatch(r"((?:--[^\n]*\n)+)(.*?);\n((?:--[^\n]*\n?)+)", block.strip() + "\n", re.DOTALL)
        assert match, f"{path.name}: case {number} is not a reason, a query and its rows:\n{block}"
        reason = " ".join(line.removeprefix("--").strip() for line in match[1].splitlines())
        lines = [line.removeprefix("--").strip() for line in match[3].splitlines() if line.strip()]
        name = f"{path.stem}-{number}"
        if lines[0].startswith("error:"):
            found.append(Case(name, reason, match[2], (), (), lines[0].removeprefix("error:").strip()))
            continue
        cells = [tuple(cell.strip() for cell in line.split(" | ")) for line in lines]
        found.append(Case(name, reason, match[2], cells[0], tuple(cells[1:])))
    return found


def shown(value: Any) -> str:
    """Write a value as the cases do."""
    match value:
        case None:
            return NULL
        case bool():
            return str(value).lower()
        case float() | Decimal():
            return _shown_number(float(value))
        case datetime():
            return value.isoformat(sep=" ").replace("+00:00", "Z")
        case date():
            return value.isoformat()
        case list():
            return "[" + ", ".join(map(shown, value)) + "]"
        case _:
            return str(value).replace("\n", "\\n")


def _shown_number(value: float) -> str:
    if not math.isfinite(value):
        return str(value)
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else f"{value:.6g}"


def rows_of(lake: Lake, text: str, engine: str) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Run a query and give its columns and rows as the cases write them."""
    table = lake.sql(text, engine=engine).to_arrow()
    columns = [column.to_pylist() for column in table.columns]
    return tuple(table.schema.names), [tuple(map(shown, row)) for row in zip(*columns, strict=True)]


def check(case: Case, lake: Lake, engine: str) -> None:
    if case.error is not None:
        with pytest.raises(TidelakeError) as caught:
            lake.sql(case.text, engine=engine).to_arrow()
        assert case.error in str(caught.value)
        return
    columns, rows = rows_of(lake, case.text, engine)
    assert columns == case.columns
    if case.is_ordered:
        assert rows == list(case.rows)
    else:
        assert sorted(rows) == sorted(case.rows)


def on_spark() -> list[Any]:
    """Return the cases, five of six for the long runs alone: each costs Spark most of a second."""
    return [
        case if at % 6 == 0 else pytest.param(case, marks=pytest.mark.torture, id=case.name)
        for at, case in enumerate(read_cases())
    ]


@pytest.mark.parametrize("case", read_cases(), ids=lambda case: case.name)
def test_case_gives_its_rows_in_process(case: Case, world: Lake) -> None:
    check(case, world, "local")


@pytest.mark.parametrize("case", on_spark(), ids=lambda case: case.name)
def test_case_gives_its_rows_on_spark(case: Case, world: Lake, quick_spark: SparkSession) -> None:
    check(case, world, "spark")


def test_there_are_enough_cases() -> None:
    assert len(read_cases()) >= 100
