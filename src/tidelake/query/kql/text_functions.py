"""List the scalar functions of texts whose arguments need more than a list of types.

``TEXTS`` is the whole list. It does not know columns.
"""

from __future__ import annotations

import re as regex
from collections.abc import Mapping
from typing import Any

from sqlglot import exp

from tidelake.query.kql.arguments import Arguments, Rule, ScalarFunction
from tidelake.query.kql.conversions import convert
from tidelake.query.kql.values import Value, any_of, call, cast, coalesced, literal, text, text_literal


def _strcat(args: Arguments) -> Value:
    parts = [args.as_type(index, "text") for index in range(len(args))]
    if all(part.is_constant for part in parts):
        return literal("".join(part.constant or "" for part in parts), "string")
    return Value(call("tide_strcat", *(text(part) for part in parts)), "string")


def _strcat_delim(args: Arguments) -> Value:
    parts = [text(args.as_type(index, "text")) for index in range(len(args))]
    return Value(call("tide_strcat_delim", *parts), "string")


def _split(args: Arguments) -> Value:
    subject, delimiter = args.as_type(0, "text"), args.as_type(1, "text")
    parts = call("tide_split", text(subject), delimiter.sql)
    if len(args) < 3:
        return Value(parts, "dynamic")
    return Value(call("tide_pack_array", call("tide_at", parts, args.as_type(2, "long").sql)), "dynamic")


def _extract(args: Arguments) -> Value:
    pattern, group, subject = args.as_type(0, "regex"), args.as_type(1, "long"), args.as_type(2, "text")
    if pattern.is_constant and group.is_constant and not 0 <= (group.constant or 0) <= _group_count(pattern.constant):
        found = literal("", "string")
    else:
        found = Value(call("tide_extract", pattern.sql, group.sql, text(subject)), "string")
    return convert(found, str(args.constant(3, "the type"))) if len(args) > 3 else found


def _extract_all(args: Arguments) -> Value:
    subject = args.as_type(len(args) - 1, "text")
    pattern = args.as_type(0, "text")
    groups = _group_count(str(pattern.constant)) if pattern.is_constant else 1
    chosen = list(range(1, groups + 1))
    if len(args) > 2:
        chosen = [_group(args, group, str(pattern.constant)) for group in args.constant(1, "the groups")]
    lists = [
        call("tide_extract_group", args.as_type(0, "regex").sql, exp.Literal.number(group), text(subject))
        for group in chosen or [0]
    ]
    return Value(lists[0] if len(lists) == 1 else call("tide_zip", *lists), "dynamic")


_CAPTURES = regex.compile(r"\\.|(\((?!\?)|\(\?P?<(\w+)>)")


def _group(args: Arguments, group: Any, pattern: str) -> int:
    """Return a group's number, by number or by name."""
    if not isinstance(group, str):
        return int(group)
    names = [match[2] for match in _CAPTURES.finditer(pattern) if match[1]]
    if group not in names:
        raise args.error(f"the pattern has no group '{group}'", 1)
    return names.index(group) + 1


def _group_count(pattern: str) -> int:

    try:
        return regex.compile(pattern).groups
    except (regex.error, OverflowError, RecursionError):
        return pattern.count("(") - pattern.count(r"\(") - pattern.count("(?")


def _extract_json(args: Arguments) -> Value:
    path = args.constant(0, "the path")
    if not isinstance(path, str) or not path.startswith("$"):
        raise args.error("a path begins with $", 0)
    steps = path[1:].lstrip(".").replace("['", ".").replace('["', ".").replace("']", "").replace('"]', "")
    subject = (
        args[1] if args[1].type == "dynamic" else Value(call("tide_parse_json", args.as_type(1, "text").sql), "dynamic")
    )
    found = Value(call("tide_get", subject.sql, text_literal(steps.lstrip("."))), "dynamic") if steps else subject
    return convert(found, str(args.constant(2, "the type")) if len(args) > 2 else "string")


def _substring(args: Arguments) -> Value:
    subject, start = args.as_type(0, "text"), args.as_type(1, "long")
    bounds = [start, *([args.as_type(2, "long")] if len(args) > 2 else [])]
    plain = all(isinstance(bound.constant, int) and bound.constant >= 0 for bound in bounds)
    target = "tide_substring" if plain else "tide_substring_from"
    return Value(call(target, text(subject), *(bound.sql for bound in bounds)), "string")


def _indexof(target: str) -> Rule:
    """Bind a search for a place: most ask for the first, which engines find by themselves."""

    def rule(args: Arguments) -> Value:
        sides = [text(args.as_type(index, "text")) for index in range(2)]
        if target == "tide_indexof_from" and len(args) == 2:
            return Value(call("tide_indexof", *sides), "long")
        options = [args.as_type(at, "long") for at in range(2, len(args))]
        options += [literal(default, "long") for default in (0, -1, 1)[len(options) :]]
        parts = [
            exp.Literal.string("["),
            options[0].sql,
            *(each for option in options[1:] for each in (exp.Literal.string(","), option.sql)),
            exp.Literal.string("]"),
        ]
        return Value(call(target, *sides, call("tide_strcat", *(cast(part, "string") for part in parts))), "long")

    return rule


def _hash(args: Arguments) -> Value:
    value = args[0]
    kind = {"int": "long", "timespan": "long", "datetime": "long", "decimal": "real"}.get(value.type, value.type)
    if kind == "long":
        value = convert(value, "long")
    elif kind != "real":
        kind, value = "string", convert(value, "string")
    subject = text(value) if kind == "string" else value.sql
    divisor = [args.as_type(1, "long").sql] if len(args) > 1 else []
    return Value(call("tide_hashed", subject, text_literal(kind), *divisor), "long")


def _hash_many(args: Arguments) -> Value:
    """Hash several values together: the hashes of all are hashed."""
    each = [_hash(Arguments(args.name, (value,), args.scope, args.at, args.places)).sql for value in args.values]
    comma = text_literal(",")
    texts = [part for sql in each for part in (comma, cast(coalesced(sql, exp.Literal.number(0)), "string"))][1:]
    return Value(call("tide_hashed", call("tide_strcat", *texts), text_literal("string")), "long")


def _replace_strings(args: Arguments) -> Value:
    """Replace texts by others, all at once: what has been put in is not looked at again."""
    lists = [call("tide_to_json", args.as_type(at, "dynamic").sql) for at in (1, 2)]
    return Value(call("tide_replace_strings", text(args.as_type(0, "text")), *lists), "string")


def _has_any_ipv4(target: str) -> Rule:
    def rule(args: Arguments) -> Value:
        subject = args.as_type(0, "text")
        options: list[exp.Expr] = []
        arrays: list[exp.Expr] = []
        for index in range(1, len(args)):
            value = args[index]
            if value.type == "dynamic" and value.is_constant:
                options += [text_literal(str(item)) for item in value.constant or []]
            elif value.type == "dynamic":
                arrays.append(value.sql)
            else:
                options.append(args.as_type(index, "text").sql)
        parts = [call(target, subject.sql, option) for option in options]
        parts += [call(f"{target}_of", subject.sql, array) for array in arrays]
        return Value(any_of(parts), "bool")

    return rule


def _has_any_index(args: Arguments) -> Value:
    """Return the place of the first word that a text has, or -1."""
    subject = args.as_type(0, "text")
    none = exp.Neg(this=exp.Literal.number(1))
    if not args[1].is_constant:
        words = call("tide_to_json", args.as_type(1, "dynamic").sql)
        return Value(call("tide_has_any_index", text(subject), words), "long")
    words = args[1].constant
    if not isinstance(words, list):
        raise args.error("has_any_index needs an array", 1, kind="type")
    ifs = [
        exp.If(this=call("tide_has", subject.sql.copy(), text_literal(str(word))), true=exp.Literal.number(at))
        for at, word in enumerate(words)
    ]
    return Value(cast(exp.Case(ifs=ifs, default=none) if ifs else none, "long"), "long")


def _ipv4_in_any(args: Arguments) -> Value:
    subject = args.as_type(0, "text")
    parts: list[exp.Expr] = []
    for index in range(1, len(args)):
        value = args[index]
        if value.type == "dynamic" and value.is_constant:
            parts += [
                call("tide_ipv4_is_in_range", subject.sql, text_literal(str(item))) for item in value.constant or []
            ]
        elif value.type == "dynamic":
            parts.append(call("tide_ipv4_is_in_any", subject.sql, value.sql))
        else:
            parts.append(call("tide_ipv4_is_in_range", subject.sql, args.as_type(index, "text").sql))
    return Value(any_of(parts), "bool")


_ENTRIES: dict[str, tuple[int, int, Rule, str]] = {
    "strcat": (1, 64, _strcat, "string"),
    "strcat_delim": (2, 64, _strcat_delim, "string"),
    "split": (2, 3, _split, "dynamic"),
    "extract": (3, 4, _extract, "string"),
    "extract_all": (2, 3, _extract_all, "dynamic"),
    "extractall": (2, 3, _extract_all, "dynamic"),
    "extract_json": (2, 3, _extract_json, "string"),
    "extractjson": (2, 3, _extract_json, "string"),
    "substring": (2, 3, _substring, "string"),
    "indexof_regex": (2, 5, _indexof("tide_indexof_regex"), "long"),
    "indexof": (2, 5, _indexof("tide_indexof_from"), "long"),
    "hash_xxhash64": (1, 2, _hash, "long"),
    "hash_many": (2, 64, _hash_many, "long"),
    "hash": (1, 2, _hash, "long"),
    "replace_strings": (3, 3, _replace_strings, "string"),
    "has_any_index": (2, 2, _has_any_index, "long"),
    "has_any_ipv4": (2, 64, _has_any_ipv4("tide_has_ipv4"), "bool"),
    "has_any_ipv4_prefix": (2, 64, _has_any_ipv4("tide_has_ipv4_prefix"), "bool"),
    "ipv4_is_in_any_range": (2, 64, _ipv4_in_any, "bool"),
}

TEXTS: Mapping[str, ScalarFunction] = {name: ScalarFunction(name, *entry) for name, entry in _ENTRIES.items()}
