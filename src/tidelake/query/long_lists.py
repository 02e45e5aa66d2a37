"""Keep what is long in a query small as a tree, so that a hundred thousand values are planned quickly.

``x in ('a', 'b', …)`` as a condition of a query becomes ``x in (tide_texts('["a", "b", …]'))``: trees are walked,
copied and typed many times, and a list that is one node costs nothing then. Engines read it as rows, and look
values up in a table of them. Only lists of texts, or of whole numbers of 64 bits, are packed; where their meaning
depends on anything but that, they are written out again.

A chain of a thousand parts of ``and`` or ``or`` is a tree a thousand deep as a parser reads it, and ten deep once it is
balanced, with its parts in the same order; what walks a tree does not go too deep then. It does not know the types of
columns: see ``adapt``.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import TypeAlias, cast

import orjson
from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

LONG = 256  # values from which on a list is packed: below, engines plan a list faster than a join
LONG_CHAIN = 16  # parts from which on a chain is balanced
TEXTS, LONGS = "tide_texts", "tide_longs"

Values: TypeAlias = list[str] | list[int]


def packed(values: Values) -> exp.Anonymous | None:
    """Return the node that holds a long list of values of one type, or None if the list must be written out."""
    if len(values) < LONG:
        return None
    if all(type(value) is int and -(2**63) <= value < 2**63 for value in values):
        name = LONGS
    elif all(isinstance(value, str) and "\0" not in value for value in values):  # which JSON cannot hold everywhere
        name = TEXTS
    else:
        return None
    return exp.Anonymous(this=name, expressions=[exp.Literal.string(orjson.dumps(values).decode())])


def values_of(node: exp.In) -> Values | None:
    """Return the values of a list that is packed, or None if it is not."""
    if len(node.expressions) != 1 or not isinstance(call := node.expressions[0], exp.Anonymous):
        return None
    return cast(Values, orjson.loads(str(call.expressions[0].this))) if call.this in (TEXTS, LONGS) else None


def write_out(node: exp.In, values: Values) -> None:
    """Put every value of a list into the tree."""
    node.set("expressions", [_literal(value) for value in values])


def cut_lists(tokens: list[Token], text: str) -> tuple[list[Token], Mapping[str, Values]]:
    """Put one token in the place of each long list, and return the lists by the texts of those tokens."""
    lists: dict[str, Values] = {}
    kept: list[Token] = []
    at = 0
    while at < len(tokens):
        kept.append(tokens[at])
        at += 1
        begins = tokens[at - 1].token_type is TokenType.L_PAREN and at > 1 and tokens[at - 2].token_type is TokenType.IN
        if not begins or len(tokens) - at < 2 * LONG:
            continue
        values, end = _read(tokens, at, text)
        if len(values) >= LONG:
            mark = secrets.token_hex(16)  # which nobody can have written
            lists[mark] = values
            first = tokens[at]
            kept.append(Token(TokenType.STRING, mark, first.line, first.col, first.start, first.end, []))
            at = end
    return kept, lists


def put_lists(tree: exp.Expr, lists: Mapping[str, Values]) -> None:
    """Put the lists back: packed where they are a condition of their own, else value by value."""
    if not lists:
        return
    for literal in list(tree.find_all(exp.Literal)):
        values = lists.get(str(literal.this)) if literal.is_string else None
        if values is None:
            continue
        node = cast(exp.In, literal.parent)
        call = packed(values) if _is_condition(node) else None
        if call is None:
            write_out(node, values)
        else:
            node.set("expressions", [call])


def write_out_others(tree: exp.Expr) -> None:
    """Write out the lists that are no condition of their own: not every engine takes a query in any place."""
    for node in tree.find_all(exp.In):
        if not _is_condition(node) and (values := values_of(node)) is not None:
            write_out(node, values)


def balance(tree: exp.Query) -> exp.Query:
    """Balance every long chain of a tree, in place."""
    for node in list(tree.find_all(exp.And, exp.Or)):
        kind = type(node)
        above = node.parent
        while isinstance(above, exp.Paren):
            above = above.parent
        if isinstance(above, kind):
            continue  # inside a chain that begins above
        parts = _parts(node)
        if len(parts) >= LONG_CHAIN:
            joined = _joined(kind, parts)
            node.set("this", joined.this)
            node.set("expression", joined.expression)
    return tree


def _read(tokens: Sequence[Token], at: int, text: str) -> tuple[Values, int]:
    """Return the values of a list up to its closing bracket, and the place of that; none if they are not alike."""
    values: list[str | int] = []
    kind = TokenType.STRING if tokens[at].token_type is TokenType.STRING else TokenType.NUMBER
    while at + 1 < len(tokens):
        sign = tokens[at].token_type is TokenType.DASH and kind is TokenType.NUMBER
        token = tokens[at + sign]
        if token.token_type is not kind:
            break
        if kind is TokenType.NUMBER:
            if not (token.text.isascii() and token.text.isdecimal() and len(token.text) < 19):
                break
            values.append(-int(token.text) if sign else int(token.text))
        else:
            if text[token.start] != "'":  # in double quotes it may be a column
                break
            values.append(token.text)
        at += 1 + sign
        if at < len(tokens) and tokens[at].token_type is TokenType.R_PAREN:
            return cast(Values, values), at
        if at >= len(tokens) or tokens[at].token_type is not TokenType.COMMA:
            break
        at += 1
    return [], at


def _is_condition(node: exp.Expr) -> bool:
    """Whether a test is a part of a where, with nothing but and, or and not around it."""
    above = node.parent
    while isinstance(above, exp.And | exp.Or | exp.Not | exp.Paren):
        above = above.parent
    return isinstance(node, exp.In) and isinstance(above, exp.Where)


def _literal(value: str | int) -> exp.Expr:
    if isinstance(value, str):
        return exp.Literal.string(value)
    return exp.Neg(this=exp.Literal.number(-value)) if value < 0 else exp.Literal.number(value)


def _parts(node: exp.Connector) -> list[exp.Expr]:
    """Return the parts of a chain, from left to right."""
    kind, found = type(node), []
    waiting: list[exp.Expr] = [node]
    while waiting:
        each = waiting.pop()
        inner = each.unnest()
        if isinstance(inner, kind):
            waiting += [inner.expression, inner.this]
        else:
            found.append(each)
    return found


def _joined(kind: type[exp.Connector], parts: Sequence[exp.Expr]) -> exp.Expr:
    if len(parts) == 1:
        return parts[0]
    half = len(parts) // 2
    return kind(this=_joined(kind, parts[:half]), expression=_joined(kind, parts[half:]))
