"""Declare how texts are searched: parts, terms, patterns, places and counts.

A term is a run that no letter or digit touches; case does not count unless told. It does not search.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from functools import lru_cache

from sqlglot import exp

from tidelake.query.functions.declaration import Function, declare
from tidelake.query.functions.patterns import (
    EDGE_AFTER,
    EDGE_BEFORE,
    LETTER,
    duckdb_text,
    in_any_case,
    spark_text,
    term_pattern,
)
from tidelake.query.functions.templates import Writer, literal_text, named

_pattern = lru_cache(maxsize=256)(re.compile)
_UNLIKE = re.compile("[iIkK\u0130\u212a]")  # letters whose case engines see otherwise: the Kelvin sign, the dotted I
_DUCKDB, _SPARK = ("regexp_matches", duckdb_text), ("regexp_like", spark_text)


def _term_duckdb(*, cased: bool = False, prefix: bool = False, suffix: bool = False) -> Writer:
    def write(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
        term = literal_text(nodes[1])
        if term is not None:
            pattern = term_pattern(term, cased=cased, prefix=prefix, suffix=suffix)
            return f"regexp_matches({texts[0]}, {duckdb_text(pattern)})"
        edges = {"^%s": "" if suffix else EDGE_BEFORE, "%s$": "" if prefix else EDGE_AFTER}
        before, after = (
            f"CASE WHEN regexp_matches({texts[1]}, '{where % LETTER}') THEN '{edge}' ELSE '' END"
            for where, edge in edges.items()
        )
        flag = "" if cased else "(?i)"
        return f"regexp_matches({texts[0]}, '{flag}' || {before} || regexp_escape({texts[1]}) || {after})"

    return write


def _part(function: str, test: str, quoted: Callable[[str], str], before: str = "", after: str = "") -> Writer:
    """Look for a text whatever its case; by a pattern, where an engine's small letters are not those of scans."""

    def write(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
        part = literal_text(nodes[1])
        if part is not None and _UNLIKE.search(part):
            return f"{test}({texts[0]}, {quoted(before + in_any_case(part) + after)})"
        return f"{function}(lower({texts[0]}), lower({texts[1]}))"

    return write


def _has_any_duckdb(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
    """Look for terms by one pattern; those with like edges share them, for hundreds of edges are too large for it."""
    alike: dict[tuple[bool, bool], list[str]] = {}
    for node in nodes[1:]:
        term = literal_text(node) or ""
        alike.setdefault((term[:1].isalnum(), term[-1:].isalnum()), []).append(in_any_case(term))
    pattern = "|".join(
        f"(?:{EDGE_BEFORE if starts else ''}(?:{'|'.join(terms)}){EDGE_AFTER if ends else ''})"
        for (starts, ends), terms in alike.items()
    )
    return f"regexp_matches({texts[0]}, {duckdb_text(pattern)})"


def _has_all_duckdb(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
    tests = [f"regexp_matches(tide_v, {duckdb_text(term_pattern(literal_text(node) or ''))})" for node in nodes[1:]]
    return named(texts[0], " AND ".join(tests), "duckdb")


def _countof_duckdb(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
    kind = literal_text(nodes[2]) if len(nodes) > 2 else "normal"
    if kind == "regex":
        return f"len(regexp_extract_all({texts[0]}, {texts[1]}))"
    return f"tide_countof_plain({texts[0]}, {texts[1]})"


def _extract_duckdb(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
    """Return a group of the first match; DuckDB counts groups only up to nine there, but among all matches any."""
    pattern, group, subject = texts
    if group.isdecimal() and int(group) > 9:
        return f"coalesce(regexp_extract_all({subject}, {pattern}, {group})[1], '')"
    return f"regexp_extract({subject}, {pattern}, CAST({group} AS INTEGER))"


def _term_spark(*, cased: bool = False, prefix: bool = False, suffix: bool = False) -> Writer:
    def write(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
        term = literal_text(nodes[1])
        if term is not None:
            pattern = term_pattern(term, cased=cased, prefix=prefix, suffix=suffix)
            return f"regexp_like({texts[0]}, {spark_text(pattern)})"
        edges = {"^%s": "" if suffix else EDGE_BEFORE, "%s$": "" if prefix else EDGE_AFTER}
        before, after = (
            f"CASE WHEN regexp_like({texts[1]}, {spark_text(where % LETTER)}) THEN {spark_text(edge)} ELSE '' END"
            for where, edge in edges.items()
        )
        flag = "" if cased else "(?iu)"
        return rf"regexp_like({texts[0]}, concat('{flag}', {before}, '\\Q', {texts[1]}, '\\E', {after}))"

    return write


def _has_any_spark(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
    terms = [literal_text(node) or "" for node in nodes[1:]]
    pattern = "|".join(f"(?:{term_pattern(term)})" for term in terms)
    return f"regexp_like({texts[0]}, {spark_text(pattern)})"


def _has_all_spark(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
    patterns = [term_pattern(literal_text(node) or "") for node in nodes[1:]]
    return named(texts[0], " AND ".join(f"regexp_like(tide_v, {spark_text(pattern)})" for pattern in patterns), "spark")


def _countof_spark(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
    kind = literal_text(nodes[2]) if len(nodes) > 2 else "normal"
    if kind == "regex":
        return f"CAST(regexp_count({texts[0]}, {texts[1]}) AS BIGINT)"
    return f"tide_countof_plain({texts[0]}, {texts[1]})"


def indexof(text: str, sought: str, options: str) -> int | None:
    """Find the n-th place of a text within so many letters from a start, which may be counted from the end."""
    start, length, occurrence = (int(each) for each in json.loads(options))
    if occurrence < 1 or length < -1:
        return None
    start = max(0, len(text) + start) if start < 0 else start
    for _ in range(occurrence):
        at = text.find(sought, start, len(text) if length < 0 else start + length)
        if at < 0 or start > len(text):
            return -1
        start = at + 1
    return start - 1


def indexof_regex(text: str, sought: str, options: str) -> int | None:
    """Find the n-th place that a pattern matches; matches do not overlap."""
    start, length, occurrence = (int(each) for each in json.loads(options))
    if start < 0 or occurrence < 1 or length < -1:
        return None
    found = -1
    for _ in range(occurrence):
        match = _pattern(sought).search(text, start, len(text) if length < 0 else start + length)
        if match is None:
            return -1
        found, start = match.start(), max(match.end(), match.start() + 1)
    return found


def countof(text: str, sought: str) -> int:
    """Count where a text begins within another, also where one begins within the last."""
    if not sought:
        return 0
    count, at = 0, text.find(sought)
    while at >= 0:
        count, at = count + 1, text.find(sought, at + 1)
    return count


def has_any_index(text: str, words: str) -> int:
    """Find the first word of a list that a text has as a whole term, whatever its case."""
    for at, word in enumerate(json.loads(words)):
        before, after = (
            (r"(?<![^\W_])" if str(word)[:1].isalnum() else ""),
            (r"(?![^\W_])" if str(word)[-1:].isalnum() else ""),
        )
        if _pattern(f"(?i){before}{re.escape(str(word))}{after}").search(text):
            return at
    return -1


FUNCTIONS: tuple[Function, ...] = (
    declare("contains", returns="bool", duckdb=_part("contains", *_DUCKDB), spark=_part("contains", *_SPARK)),
    declare("contains_cs", returns="bool", both="contains({0}, {1})"),
    declare(
        "startswith",
        returns="bool",
        duckdb=_part("starts_with", *_DUCKDB, before="^"),
        spark=_part("startswith", *_SPARK, before="^"),
    ),
    declare("startswith_cs", returns="bool", duckdb="starts_with({0}, {1})", spark="startswith({0}, {1})"),
    declare(
        "endswith",
        returns="bool",
        duckdb=_part("ends_with", *_DUCKDB, after=r"\z"),
        spark=_part("endswith", *_SPARK, after=r"\z"),
    ),
    declare("endswith_cs", returns="bool", duckdb="ends_with({0}, {1})", spark="endswith({0}, {1})"),
    declare("matches", returns="bool", duckdb="regexp_matches({0}, {1})", spark="regexp_like({0}, {1})"),
    declare("has", returns="bool", duckdb=_term_duckdb(), spark=_term_spark(), in_sql=True),
    declare("has_cs", returns="bool", duckdb=_term_duckdb(cased=True), spark=_term_spark(cased=True)),
    declare("hasprefix", returns="bool", duckdb=_term_duckdb(prefix=True), spark=_term_spark(prefix=True)),
    declare(
        "hasprefix_cs",
        returns="bool",
        duckdb=_term_duckdb(prefix=True, cased=True),
        spark=_term_spark(prefix=True, cased=True),
    ),
    declare("hassuffix", returns="bool", duckdb=_term_duckdb(suffix=True), spark=_term_spark(suffix=True)),
    declare(
        "hassuffix_cs",
        returns="bool",
        duckdb=_term_duckdb(suffix=True, cased=True),
        spark=_term_spark(suffix=True, cased=True),
    ),
    declare("has_any", returns="bool", duckdb=_has_any_duckdb, spark=_has_any_spark, in_sql=True),
    declare("has_all", returns="bool", duckdb=_has_all_duckdb, spark=_has_all_spark, in_sql=True),
    declare(
        "has_any_of",
        returns="bool",
        duckdb="len(list_filter(<texts {1}>, lambda w: regexp_matches({0}, '(?i)' || <edged w>))) > 0",
        spark="exists(<texts {1}>, w -> regexp_like({0}, concat('(?iu)', <edged w>)))",
    ),
    declare(
        "has_all_of",
        returns="bool",
        duckdb="len(list_filter(<texts {1}>, lambda w: NOT regexp_matches({0}, '(?i)' || <edged w>))) = 0",
        spark="forall(<texts {1}>, w -> regexp_like({0}, concat('(?iu)', <edged w>)))",
    ),
    declare(
        "has_any_terms",
        returns="bool",
        duckdb="regexp_matches({0}, '(?i)(?:' || {1} || ')')",
        spark="regexp_like({0}, concat('(?iu)(?:', {1}, ')'))",
    ),
    declare(
        "terms",
        returns="text",
        duckdb="string_agg(<edged {0}>, '|')",
        spark="array_join(collect_list(concat(<edged {0}>)), '|')",
        aggregates=True,
    ),
    declare("has_any_index", returns="long", python=has_any_index, arity=2),
    declare(
        "in_array", returns="bool", duckdb="list_contains(<texts {1}>, {0})", spark="array_contains(<texts {1}>, {0})"
    ),
    declare(
        "in_array_folded",
        returns="bool",
        duckdb="list_contains(list_transform(<texts {1}>, lambda w: lower(w)), lower({0}))",
        spark="array_contains(transform(<texts {1}>, w -> lower(w)), lower({0}))",
    ),
    declare("indexof", returns="long", duckdb="(strpos({0}, {1}) - 1)", spark="CAST(locate({1}, {0}) - 1 AS BIGINT)"),
    declare("indexof_from", returns="long", python=indexof, arity=3),
    declare("indexof_regex", returns="long", python=indexof_regex, arity=3),
    declare("countof", returns="long", duckdb=_countof_duckdb, spark=_countof_spark),
    declare("countof_plain", returns="long", python=countof, arity=2),
    declare(
        "extract",
        returns="text",
        duckdb=_extract_duckdb,
        spark="coalesce(regexp_extract({2}, {0}, CAST({1} AS INT)), '')",
    ),
    declare(
        "extract_group",
        returns="dynamic",
        duckdb="to_json(regexp_extract_all({2}, {0}, CAST({1} AS INTEGER)))",
        spark="CAST(regexp_extract_all({2}, {0}, CAST({1} AS INT)) AS VARIANT)",
    ),
)
