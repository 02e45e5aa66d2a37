"""Judge questions in KQL: the documentation's, other engines' tests, and ClickHouse's.

It does not run anything: it is given a function that does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from tools.oracles.compare import NULLS, same_rows, same_value
from tools.oracles.outcomes import Ask, Entry, File, Outcome, Rows, judged

OUT_OF_SCOPE = re.compile(
    r"external_?data\([^;]*https?://|\bgeo_\w+|\bgraph\b|make-graph|graph-\w+|\bgraph_\w+|\ball_different|\binner_nodes"
)
_SORTS_LAST = re.compile(r"\|\s*(sort|order|top)\s[^|]*$")
_GIVEN = re.compile(r"print_\d+|column\d+")  # names that nobody chose
_BY_CHANCE = re.compile(r"\brand\(|\bsample \d|new_guid\(")
_SETS = re.compile(r"make_set|set_\w+\(|buildschema|bag_keys|dcount|make_list|hash_many|\btake_any")


def judge_docs(entry: Entry, ask: Ask) -> Outcome:
    """Judge an example of the documentation: the columns' names count, but for case."""
    columns = [_named(column) for column in entry["columns"]]
    return _judge_table(_name(entry), entry, columns, entry["rows"], ask)


def judge_tests(entry: Entry, ask: Ask) -> Outcome:
    """Judge another engine's test: a table, or the last line of the result's text."""
    if not entry["form"]:
        rows = entry["rows"]
        return _judge_table(_name(entry), entry, [_named(c) for c in entry["columns"]], rows, ask)
    subject, _, verb = entry["form"].partition(":")
    expected: str = entry["expected"]

    def compare() -> tuple[bool, str]:
        found = ask(entry["query"])
        lines = [_line(row) for row in found.rows]
        if subject.startswith("ResultAs"):
            text = (",\n".join if subject == "ResultAsString" else "\n".join)(lines)
            return _says(verb, _squashed(text), _squashed(expected)), text
        last = lines[-1] if lines else ""
        if (
            verb == "Be"
            and found.rows
            and len(found.rows[-1]) == 1
            and same_value(expected, found.rows[-1][0], sets=True)
        ):
            return True, last
        return _says(verb, _squashed(last), _squashed(expected)), last

    return judged(_name(entry), entry["query"], expected, compare)


def judge_segments(entry: Entry, ask: Ask) -> Outcome:
    """Judge a group of questions whose answers were printed one after the other."""
    lines: Sequence[str] = entry["lines"]

    def compare() -> tuple[bool, str]:
        rows = [row for query in entry["queries"] for row in ask(query).rows]
        printed = [line.split("\t") for line in lines]
        return same_rows(printed, rows, sets=True), "\n".join("\t".join(_cell(v) for v in row) for row in rows)

    return judged(_name(entry), "\n;\n".join(entry["queries"]), "\n".join(lines), compare)


def is_in_scope(entry: Entry) -> bool:
    """Whether an entry is meant to work: it asks for no map, graph or page of the web, and is not skipped."""
    texts = entry.get("queries") or [entry["query"]]
    return not entry.get("skip") and not any(OUT_OF_SCOPE.search(text) for text in texts)


FILES: Mapping[str, File] = {
    "kql_docs": File("kql", judge_docs, is_in_scope),
    "kql_tests": File("kql", judge_tests, is_in_scope),
    "kql_segments": File("kql", judge_segments, is_in_scope),
}


def _judge_table(
    name: str, entry: Entry, columns: Sequence[str], printed: Sequence[Sequence[str]], ask: Ask
) -> Outcome:
    query = entry["query"]
    ordered = _SORTS_LAST.search(query) is not None
    sets = _SETS.search(query) is not None
    by_chance = _BY_CHANCE.search(query) is not None

    def compare() -> tuple[bool, str]:
        found = ask(query)
        text = "\n".join("\t".join(line) for line in [found.columns, *(map(_cell, row) for row in found.rows)])
        aligned = _aligned(found, columns)
        if aligned is None or (by_chance and len(aligned) == len(printed)):  # of chance, only the shape is compared
            return aligned is not None, text
        if ordered and same_rows(printed, aligned, sets=sets):
            return _in_order(printed, aligned, _sort_places(query, columns)), text
        return same_rows(printed, aligned, ordered=ordered, sets=sets), text

    expected = "\n".join("\t".join(line) for line in [columns, *printed])
    return judged(name, query, expected, compare)


def _aligned(found: Rows, columns: Sequence[str]) -> Sequence[Sequence[Any]] | None:
    """Return rows with their columns in the order in which others printed them; None where the names differ."""
    ours = [column.lower() for column in found.columns]
    theirs = [column.lower() for column in columns]
    if len(ours) != len(theirs):
        return None
    if all(own == their or not their or _GIVEN.fullmatch(own) for own, their in zip(ours, theirs, strict=True)):
        return found.rows
    if sorted(ours) != sorted(theirs) or len(set(ours)) != len(ours):
        return None
    places = [ours.index(name) for name in theirs]
    return [[row[at] for at in places] for row in found.rows]


def _sort_places(query: str, columns: Sequence[str]) -> list[int]:
    """Return where the columns stand that a query sorts by last; what is no column is left out."""
    match = _SORTS_LAST.search(query)
    names = [column.lower() for column in columns]
    keys = re.findall(r"(?:\bby|,)\s*(\w+)", match[0] if match else "")
    return [names.index(key.lower()) for key in keys if key.lower() in names]


def _in_order(printed: Sequence[Sequence[str]], ours: Sequence[Sequence[Any]], places: Sequence[int]) -> bool:
    """Whether rows follow each other as printed ones do, as far as what they are sorted by tells."""
    return all(same_value(row[at], own[at]) for row, own in zip(printed, ours, strict=True) for at in places)


def _named(column: str) -> str:
    return re.sub(r"\\(?=[_*])", "", column.strip().strip("`*").strip())


def _line(row: Sequence[Any]) -> str:
    return ",".join("<null>" if value is None else _cell(value) for value in row)


def _cell(value: Any) -> str:
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S.%f").removesuffix(".000000") + "Z"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, list | dict):
        return json.dumps(value, separators=(",", ":"))
    return "null" if value is None else str(value)


def _says(verb: str, text: str, expected: str) -> bool:
    if expected in NULLS and text in NULLS:
        return True
    match verb:
        case "Be":
            return text == expected
        case "StartWith":
            return text.startswith(expected)
        case _:
            return expected in text


def _squashed(text: str) -> str:
    return re.sub(r"\s+", "", text)


def _name(entry: Entry) -> str:
    place = entry.get("line") or entry.get("test") or entry.get("marker")
    return f"{entry['path'].rsplit('/', 1)[-1]}:{place}"
