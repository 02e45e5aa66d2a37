"""Judge questions in Spark's SQL, whose answers are lines of cells separated by tabs.

Rows count without order unless the query sorts last; numbers are compared with tolerance, intervals by their length,
and what is nested without quotes. Column names are not compared: Spark names an expression otherwise. It does not run
anything: it is given a function that does.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import sqlglot
from sqlglot import exp

from tools.oracles.compare import same_value
from tools.oracles.outcomes import Ask, Entry, File, Outcome, judged

_SORTS_LAST = re.compile(r"order\s+by(?:[^()]|\([^()]*\))*$", re.IGNORECASE)
_MONTHS = re.compile(r"(-?)(\d+)-(\d+)")
_DAYS = re.compile(r"(-?)(\d+) (\d+):(\d+):(\d+)(?:\.(\d+))?")
_CALENDAR = re.compile(r"(-?[\d.]+) (year|month|day|hour|minute|second)s?")
_NANOS = {"day": 86_400 * 10**9, "hour": 3_600 * 10**9, "minute": 60 * 10**9, "second": 10**9}
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")


def judge(entry: Entry, ask: Ask) -> Outcome:
    """Judge a question of Spark's own tests."""

    def compare() -> tuple[bool, str]:
        rows = ask(entry["query"]).rows
        found = "\n".join("\t".join(shown(value) for value in row) for row in rows)
        printed = [line.split("\t") for line in entry["output"].split("\n")] if entry["output"] else []
        if found.split() == entry["output"].split() and (len(rows) == len(printed) or not found.strip()):
            return True, found  # text may hold tabs and ends of lines
        if _SORTS_LAST.search(entry["own"]) is None:
            return _same_rows(printed, rows, ordered=False), found
        return _same_rows(printed, rows, ordered=True) or _same_but_for_ties(printed, rows, entry), found

    return judged(entry["path"], entry["query"], entry["output"], compare)


def shown(value: Any, *, nested: bool = False) -> str:
    """Write a value as Spark's tests print it, but for how many digits a number has."""
    match value:
        case None:
            return "null" if nested else "NULL"
        case bool():
            return str(value).lower()
        case float():
            if math.isfinite(value):
                return repr(value)
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case Decimal():
            return f"{value:f}"
        case datetime():
            text = value.replace(tzinfo=None).isoformat(sep=" ")
            return text.rstrip("0") if "." in text else text
        case bytes():
            return value.decode("utf-8", "replace")
        case list() if value and all(isinstance(each, tuple) and len(each) == 2 for each in value):
            cells = (f"{shown(key, nested=True)}:{shown(item, nested=True)}" for key, item in value)
            return "{" + ",".join(cells) + "}"
        case list():
            return "[" + ",".join(shown(each, nested=True) for each in value) + "]"
        case dict():
            cells = (f"{json.dumps(key)}:{shown(item, nested=True)}" for key, item in value.items())
            return "{" + ",".join(cells) + "}"
        case str() if nested:
            return f'"{value}"'
        case _:
            return str(value)


def same(printed: str, value: Any) -> bool:
    """Whether Spark could have printed a value so."""
    text = shown(value)
    if printed == text:
        return True
    if value is None or printed == "NULL" or isinstance(value, bool):
        return False
    if isinstance(value, timedelta):
        return _interval(printed) == (0, value // timedelta(microseconds=1) * 1000)
    if isinstance(value, pa.MonthDayNano):
        return _interval(printed) == (value.months, value.days * _NANOS["day"] + value.nanoseconds)
    if isinstance(value, float) and math.isnan(value):
        return printed == "NaN"
    if isinstance(value, list | dict):
        return _same_nested(printed, text)
    if isinstance(value, str):
        return _bare(printed) == _bare(text) or _same_nested(printed, text)
    if not isinstance(value, date) and _is_number(printed) and _is_number(text):
        return math.isclose(float(printed), float(text), rel_tol=1e-6, abs_tol=1e-12)
    return same_value(printed, value)


def _same_rows(printed: Sequence[Sequence[str]], ours: Sequence[Sequence[Any]], *, ordered: bool) -> bool:
    if len(printed) != len(ours):
        return False
    if ordered:
        return all(_same_row(left, right) for left, right in zip(printed, ours, strict=True))
    left = list(ours)
    for row in printed:
        at = next((at for at, own in enumerate(left) if _same_row(row, own)), None)
        if at is None:
            return False
        del left[at]
    return True


def _same_but_for_ties(printed: Sequence[Sequence[str]], ours: Sequence[Sequence[Any]], entry: Entry) -> bool:
    """Whether rows are equal, and in an order that the query's keys allow, where these are columns of the result."""
    tree = sqlglot.parse_one(entry["query"], read="spark")
    order = tree.args.get("order") if isinstance(tree, exp.Query) else None
    names = [name.lower() for name in re.findall(r"(?:<|,)([^:<>,]+):", entry["schema"])]
    keys = [each.this.name.lower() for each in order.expressions] if order is not None else []
    if not keys or not all(names.count(key) == 1 for key in keys) or not _same_rows(printed, ours, ordered=False):
        return False
    places = [names.index(key) for key in keys]
    return all(same(left[at], right[at]) for left, right in zip(printed, ours, strict=True) for at in places)


def _same_row(printed: Sequence[str], ours: Sequence[Any]) -> bool:
    return len(printed) == len(ours) and all(map(same, printed, ours))


def _same_nested(printed: str, text: str) -> bool:
    left, right = _bare(printed), _bare(text)
    if left[:1] not in ("[", "{") or right[:1] not in ("[", "{"):
        return False
    numbers = zip(_NUMBER.findall(left), _NUMBER.findall(right), strict=False)
    return _NUMBER.split(left) == _NUMBER.split(right) and all(
        math.isclose(float(a), float(b), rel_tol=1e-6, abs_tol=1e-12) for a, b in numbers
    )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _bare(text: str) -> str:
    return re.sub(r"[\"'\s]", "", text)


def _interval(text: str) -> tuple[int, int] | None:
    """Read an interval as months and nanoseconds."""
    if (match := _MONTHS.fullmatch(text)) is not None:
        return (-1 if match[1] else 1) * (int(match[2]) * 12 + int(match[3])), 0
    if (match := _DAYS.fullmatch(text)) is not None:
        sign, days, hours, minutes, seconds, part = match.groups()
        whole = ((int(days) * 24 + int(hours)) * 60 + int(minutes)) * 60 + int(seconds)
        return 0, (-1 if sign else 1) * (whole * 10**9 + int((part or "0").ljust(9, "0")))
    if _CALENDAR.search(text) is None:
        return None
    months = nanos = 0
    for number, unit in _CALENDAR.findall(text):
        if unit in ("year", "month"):
            months += int(number) * (12 if unit == "year" else 1)
        else:
            nanos += round(float(number) * _NANOS[unit])
    return months, nanos


FILES: Mapping[str, File] = {"spark_sql": File("sql", judge)}
