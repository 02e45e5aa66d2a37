"""Hold how a question fared, and ask an engine.

It does not know the language of a question.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from tidelake import Lake
from tidelake.errors import InvalidInputError, NotFoundError, TidelakeError, UnavailableError
from tidelake.model.schema import JSON_FIELD

Verdict = Literal["same", "different", "refused", "failed", "late"]
Language = Literal["sql", "kql"]
Entry = Mapping[str, Any]
Ask = Callable[[str], "Rows"]


@dataclass(frozen=True, slots=True)
class Rows:
    """An answer: its columns' names and its rows, dynamic values read."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one question fared: ``refused`` is an error of our own, ``failed`` is any other."""

    name: str
    verdict: Verdict
    query: str
    expected: str
    found: str


@dataclass(frozen=True, slots=True)
class File:
    """How one file of questions is asked and judged, and which of its entries are meant to work."""

    language: Language
    judge: Callable[[Entry, Ask], Outcome]
    is_in_scope: Callable[[Entry], bool] = lambda entry: True


def read_entries(path: Path) -> list[Entry]:
    """Read a file of questions, one JSON object a line, compressed by zstd."""
    with pa.CompressedInputStream(pa.OSFile(str(path)), "zstd") as stream:
        return [json.loads(line) for line in stream.read().decode().splitlines() if line]


def asker(lake: Lake, language: Language, engine: str, seconds: float) -> Ask:
    """Return a function that runs a text on an engine, within a time."""

    def ask(text: str) -> Rows:
        run = lake.kql if language == "kql" else lake.sql
        return rows_of(run(text, engine=engine, budget={"seconds": seconds}).to_arrow())

    return ask


def rows_of(table: pa.Table) -> Rows:
    """Read an Arrow table's rows; text marked as JSON is read."""
    columns = []
    for field, column in zip(table.schema, table.columns, strict=True):
        is_json = field.metadata is not None and all(field.metadata.get(k) == v for k, v in JSON_FIELD.items())
        values = column.to_pylist()
        columns.append([_parsed(value) for value in values] if is_json else values)
    return Rows(tuple(table.schema.names), tuple(zip(*columns, strict=True)))


def judged(name: str, query: str, expected: str, compare: Callable[[], tuple[bool, str]]) -> Outcome:
    """Run a comparison, and hold what became of it."""
    try:
        same, found = compare()
    except UnavailableError as error:
        return Outcome(name, "late" if error.kind == "time_budget" else "refused", query, expected, str(error))
    except (InvalidInputError, NotFoundError) as error:
        return Outcome(name, "refused", query, expected, str(error))
    except TidelakeError as error:
        return Outcome(name, "failed", query, expected, f"{type(error).__name__}: {error}")
    except Exception as error:
        return Outcome(name, "failed", query, expected, f"RAW {type(error).__name__}: {str(error)[:1000]}")
    return Outcome(name, "same" if same else "different", query, expected, found)


def _parsed(value: Any) -> Any:
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return value
