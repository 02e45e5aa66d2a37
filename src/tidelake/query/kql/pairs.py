"""Lower parse-kv: cut the values of some keys out of a text.

Delimiters alone, and greedy values, are one regular expression a key. Quotes and escapes are read by a portable
function, and an author's regular expression by the engine. It does not read texts itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from sqlglot import exp

from tidelake.query.kql import syntax
from tidelake.query.kql.binder import Binder, Place
from tidelake.query.kql.columns import rebuilt
from tidelake.query.kql.conversions import convert
from tidelake.query.kql.expanding import escaped, groups_in
from tidelake.query.kql.relations import Relation, fresh_key
from tidelake.query.kql.values import Column, Value, call, text, text_literal

OPTIONS = ("pair_delimiter", "kv_delimiter", "quote", "escape", "greedy", "regex")
_SIGN, _WORD = r"[^\p{L}\p{N}]", r"[\p{L}\p{N}]"


def parse_kv(b: Binder, relation: Relation, operator: syntax.Operator, place: Place) -> Relation:
    relation = b.steps.plain(relation)
    scope = b.scope(relation, place)
    subject = text(b.expect_text(b.bind(operator.items[0], scope), scope, operator.at, "what parse-kv reads"))
    read = _reader(b, operator, subject, place)
    chosen: dict[str, tuple[Column, exp.Expr | None]] = {c.name: (c, None) for c in relation.columns}
    for name, kind in operator.parts["as"]:
        key = chosen[name][0].key if name in chosen else fresh_key(name, [c.key for c, _ in chosen.values()])
        chosen[name] = (Column(name, kind, key), convert(Value(read(name), "string"), kind).sql)
    return rebuilt(relation, list(chosen.values()))


def _reader(b: Binder, operator: syntax.Operator, subject: exp.Expr, place: Place) -> Callable[[str], exp.Expr]:
    """Return what reads a key's value, by the options."""
    options = _options(b, operator, place)
    pair, between = ("".join(options.get(name, [])) for name in ("pair_delimiter", "kv_delimiter"))
    quotes, escapes = options.get("quote", []), "".join(options.get("escape", []))
    if pattern := "".join(options.get("regex", [])):
        return _matched(b, operator, subject, pattern)
    if bool(pair) != bool(between):
        raise b.error(operator.at, "parse-kv needs pair_delimiter and kv_delimiter, or neither", kind="arity")
    greedy = "True" in options.get("greedy", [])
    keys = [name for name, _ in operator.parts["as"]]
    if quotes:
        rest = [pair, between, quotes, escapes, keys if greedy else []]
        return lambda name: call("tide_kv_quoted", subject.copy(), text_literal(json.dumps([name, *rest])))
    return lambda name: call(
        "tide_extract", text_literal(_pattern(name, keys, pair, between, greedy)), exp.Literal.number(1), subject.copy()
    )


def _options(b: Binder, operator: syntax.Operator, place: Place) -> Mapping[str, list[str]]:
    """Return the options' values; some may come several times."""
    found: dict[str, list[str]] = {}
    for name, node in operator.parts["with"]:
        if name not in OPTIONS:
            raise b.error(node.at, f"parse-kv has no option '{name}': it has {', '.join(OPTIONS)}", kind="arity")
        found.setdefault(name, []).append(str(b.constant(node, b.scope(None, place), name)))
    return found


def _pattern(name: str, keys: list[str], pair: str, between: str, greedy: bool) -> str:
    if not pair:
        return f"(?:^|{_SIGN}){escaped(name)}{_SIGN}+({_WORD}+)"
    lead = "" if pair.isspace() else r"\s*"
    ends = escaped(pair)
    if greedy:
        ends += rf"\s*(?:{'|'.join(escaped(key) for key in keys)})\s*{escaped(between)}"
    start = rf"(?s)(?:^|{escaped(pair)})\s*{escaped(name)}\s*{escaped(between)}"
    return rf"{start}{lead}(.*?)\s*(?:{ends}|$)"


def _matched(b: Binder, operator: syntax.Operator, subject: exp.Expr, pattern: str) -> Callable[[str], exp.Expr]:
    at = next(node.at for name, node in operator.parts["with"] if name == "regex")
    if groups_in(b, pattern, at) != 2:
        raise b.error(at, "the regex of parse-kv has two groups: the key, then its value")
    keys, values = (
        call("tide_extract_group", text_literal(pattern), exp.Literal.number(group), subject.copy()) for group in (1, 2)
    )
    return lambda name: call("tide_kv_matched", keys.copy(), values.copy(), text_literal(name))
