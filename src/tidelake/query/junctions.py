"""Keep long chains of ``and`` and ``or`` shallow, so that what walks a tree does not go too deep.

A chain of a thousand parts is a tree a thousand deep as a parser reads it, and ten deep once it is balanced; it means
the same. It does not change the order of the parts.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

_LONG = 16  # parts from which on a chain is worth it


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
        if len(parts) >= _LONG:
            joined = _joined(kind, parts)
            node.set("this", joined.this)
            node.set("expression", joined.expression)
    return tree


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
