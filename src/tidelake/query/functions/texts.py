"""Declare what makes texts of texts: joined, cut, replaced, repeated, reduced.

It does not know engines beyond their SQL.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from sqlglot import exp

from tidelake.kernels.plain_templates import PLACEHOLDER, VARIABLE
from tidelake.query.functions.declaration import Function, declare
from tidelake.query.functions.patterns import spark_text
from tidelake.query.functions.templates import literal_text

_pattern = lru_cache(maxsize=256)(re.compile)


def _split_spark(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
    if literal_text(nodes[1]) == "":  # letters, of which Spark would add an empty one
        letters = (
            f"CASE WHEN {texts[0]} = '' THEN array('') ELSE slice(split({texts[0]}, ''), 1, length({texts[0]})) END"
        )
        return f"CAST({letters} AS VARIANT)"
    return rf"CAST(split({texts[0]}, concat('\\Q', {texts[1]}, '\\E')) AS VARIANT)"


_TEMPLATE_DUCKDB = f"regexp_replace({{0}}, '{VARIABLE}', '{PLACEHOLDER}', 'g')"
_TEMPLATE_SPARK = f"regexp_replace({{0}}, '{VARIABLE}', '{PLACEHOLDER}')"


def _replace_regex_spark(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
    new = literal_text(nodes[2])
    if new is None:
        return f"regexp_replace({texts[0]}, {texts[1]}, {texts[2]})"
    java = re.sub(r"\\(\d)", r"$\1", new.replace("$", "\\$"))
    return f"regexp_replace({texts[0]}, {texts[1]}, {spark_text(java)})"


def version(text: str) -> str:
    """Return up to four parts as one number, eight digits a part."""
    parts = [int(part) for part in text.strip().split(".")]
    if not 1 <= len(parts) <= 4 or any(not 0 <= part < 10**8 for part in parts):
        raise ValueError("not a version")
    return str(sum(part * 10 ** (8 * (3 - at)) for at, part in enumerate(parts)))


def replace_strings(text: str, olds: str, news: str) -> str:
    """Replace texts by others in one pass; of several that begin at a place the first of the list counts.

    What is to become no text is found as well, and stays.
    """
    held, given = json.loads(olds), json.loads(news)
    given = given if isinstance(given, list) else [given] * len(held)
    pairs = {
        old: new if isinstance(new, str) else old
        for old, new in reversed(list(zip(held, given, strict=False)))
        if isinstance(old, str) and old
    }
    ordered = [old for old in held if old in pairs] if pairs else []
    if not ordered:
        return text
    found: str = _pattern("|".join(re.escape(old) for old in ordered)).sub(lambda match: pairs[match[0]], text)
    return found


def reduced(texts: str, options: str) -> str:
    """Group texts that are alike, as ``[pattern, count, first text]``, the largest group first.

    Words are parted by what is no letter or digit, and by some characters. From the last place to the first, a word is
    a star where a share of all texts differs in that place alone and some word stays; a star takes in what parts it
    from its neighbours.
    """
    held, (share, characters) = json.loads(texts), json.loads(options)
    parting = _pattern(f"([^\\w]|_|[{re.escape(characters)}])" if characters else "([^\\w]|_)")
    rows = [tuple(part for part in parting.split(each) if part) for each in held]
    least = max(share * len(held), 2)
    for place in range(max(map(len, rows), default=0) - 1, -1, -1):
        alike: dict[tuple[str, ...], Counter[str]] = {}
        rest = [(*row[:place], "", *row[place + 1 :]) if place < len(row) else () for row in rows]
        for row, key in zip(rows, rest, strict=True):
            if key and not parting.fullmatch(row[place]):
                alike.setdefault(key, Counter())[row[place]] += 1
        rows = [
            (*row[:place], "*", *row[place + 1 :])
            if (words := alike.get(key, Counter())) and len(words) > 1 and words.total() >= least and _has_word(key)
            else row
            for row, key in zip(rows, rest, strict=True)
        ]
    groups: dict[str, list[Any]] = {}
    for each, row in zip(held, rows, strict=True):
        pattern = "".join(word for at, word in enumerate(row) if not _beside_star(row, at, parting))
        groups.setdefault(re.sub(r"\*+", "*", pattern), [pattern, 0, each])[1] += 1
    found = [[pattern, count, first] for pattern, (_, count, first) in groups.items()]
    return json.dumps(sorted(found, key=lambda group: -group[1]), ensure_ascii=False)


def _has_word(words: tuple[str, ...]) -> bool:
    return any(any(map(str.isalnum, word)) for word in words)


def _beside_star(row: tuple[str, ...], at: int, parting: re.Pattern[str]) -> bool:
    return parting.fullmatch(row[at]) is not None and "*" in (*row[max(at - 1, 0) : at], *row[at + 1 : at + 2])


def format_bytes(size: str, precision: str | None, unit: str | None) -> str:
    units = ("Bytes", "KB", "MB", "GB", "TB", "PB", "EB")
    value, at = float(size), 0
    while at + 1 < len(units) and (units[at] != unit if unit else abs(value) >= 1024):
        value, at = value / 1024, at + 1
    rounded = round(value, int(precision) if precision else 0)
    return f"{rounded:g} {units[at]}" if rounded == int(rounded) else f"{rounded} {units[at]}"


FUNCTIONS: tuple[Function, ...] = (
    declare("strcat", returns="text", both="concat({*})"),
    declare("strcat_delim", returns="text", both="concat_ws({*})"),
    declare(
        "strlen", returns="long", duckdb="length(coalesce({0}, ''))", spark="CAST(length(coalesce({0}, '')) AS BIGINT)"
    ),
    declare(
        "string_size",
        returns="long",
        duckdb="strlen(coalesce({0}, ''))",
        spark="CAST(octet_length(coalesce({0}, '')) AS BIGINT)",
    ),
    declare("lower", returns="text", both="lower({0})"),
    declare("upper", returns="text", both="upper({0})"),
    declare("reverse", returns="text", both="reverse({0})"),
    declare(
        "substring",
        returns="text",
        duckdb="substring({0}, CAST({1} + 1 AS BIGINT), CAST({2|2147483647} AS BIGINT))",
        spark="substring({0}, CAST({1} + 1 AS INT), CAST({2|2147483647} AS INT))",
    ),
    declare(
        "substring_from",
        returns="text",
        duckdb="let[[{0}]][[substring(@, CAST(CASE WHEN {1} < 0 THEN greatest(length(@) + {1}, 0) ELSE {1} END "
        "+ 1 AS BIGINT), CAST(greatest({2|2147483647}, 0) AS BIGINT))]]",
        spark="let[[{0}]][[substring(@, CAST(CASE WHEN {1} < 0 THEN greatest(length(@) + {1}, 0) ELSE {1} END "
        "+ 1 AS INT), CAST(greatest({2|2147483647}, 0) AS INT))]]",
    ),
    declare("split", returns="dynamic", duckdb="to_json(string_split({0}, {1}))", spark=_split_spark),
    declare("replace", returns="text", both="replace({0}, {1}, {2})"),
    declare("replace_regex", returns="text", duckdb="regexp_replace({0}, {1}, {2}, 'g')", spark=_replace_regex_spark),
    declare("message_template", returns="text", duckdb=_TEMPLATE_DUCKDB, spark=_TEMPLATE_SPARK, in_sql=True),
    declare(
        "template_id",
        returns="text",
        duckdb=f"substring(md5({_TEMPLATE_DUCKDB}), 1, 16)",
        spark=f"substring(md5({_TEMPLATE_SPARK}), 1, 16)",
        in_sql=True,
    ),
    declare(
        "message_variables",
        returns="dynamic",
        duckdb=f"to_json(regexp_extract_all({{0}}, '{VARIABLE}'))",
        spark=f"CAST(regexp_extract_all({{0}}, '{VARIABLE}', 0) AS VARIANT)",
    ),
    declare("replace_strings", returns="text", python=replace_strings, arity=3),
    declare(
        "translate",
        returns="text",
        duckdb="translate({2}, {0}, CASE WHEN {1} = '' THEN '' ELSE rpad({1}, CAST(length({0}) AS INTEGER), "
        "right({1}, 1)) END)",
        spark="translate({2}, {0}, CASE WHEN {1} = '' THEN '' ELSE rpad({1}, length({0}), right({1}, 1)) END)",
    ),
    declare(
        "trim",
        returns="text",
        duckdb="regexp_replace(regexp_replace({1}, '^(?:' || {0} || ')', ''), '(?:' || {0} || ')$', '')",
        spark="regexp_replace(regexp_replace({1}, concat('^(?:', {0}, ')'), ''), concat('(?:', {0}, ')$'), '')",
    ),
    declare(
        "trim_start",
        returns="text",
        duckdb="regexp_replace({1}, '^(?:' || {0} || ')', '')",
        spark="regexp_replace({1}, concat('^(?:', {0}, ')'), '')",
    ),
    declare(
        "trim_end",
        returns="text",
        duckdb="regexp_replace({1}, '(?:' || {0} || ')$', '')",
        spark="regexp_replace({1}, concat('(?:', {0}, ')$'), '')",
    ),
    declare(
        "strrep",
        returns="text",
        duckdb="array_to_string(list_transform(range(least({1}, 1024)), lambda i: {0}), {2|''})",
        spark="array_join(array_repeat({0}, CAST(least({1}, 1024) AS INT)), {2|''})",
    ),
    declare(
        "strcmp",
        returns="long",
        duckdb="CASE WHEN {0} < {1} THEN -1 WHEN {0} > {1} THEN 1 ELSE 0 END",
        spark="CAST(CASE WHEN {0} < {1} THEN -1 WHEN {0} > {1} THEN 1 ELSE 0 END AS BIGINT)",
    ),
    declare(
        "regex_quote",
        returns="text",
        duckdb="regexp_escape({0})",
        spark=r"regexp_replace({0}, '([\\\\.^$|?*+()\\[\\]\\{\\}])', '\\\\$1')",
    ),
    declare(
        "is_ascii", returns="bool", duckdb="(strlen({0}) = length({0}))", spark="(octet_length({0}) = length({0}))"
    ),
    declare("is_utf8", returns="bool", both="TRUE"),
    declare("version_text", returns="text", python=version, arity=1),
    declare("parse_version", returns="decimal", both="CAST(tide_version_text({0}) AS DECIMAL(38, 0))"),
    declare("format_bytes", returns="text", python=format_bytes, arity=3),
    declare("reduced", returns="dynamic", python=reduced, arity=2),
    declare(
        "texts",
        returns="text",
        duckdb="SELECT unnest(CAST(CAST({0} AS JSON) AS VARCHAR[]))",
        spark="SELECT explode(from_json({0}, 'array<string>'))",
    ),
)
