"""Find the case of a declared pattern: its arguments, and the path after them, choose which query is meant.

A call of a pattern is a table, written ``name("a", "b")`` or ``name("a").path``. It does not bind the query.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidelake.query.kql import syntax
from tidelake.query.kql.scope import Names


@dataclass(frozen=True, slots=True)
class Declared:
    """A pattern that was declared, with the names that it can see."""

    pattern: syntax.Pattern
    names: Names


@dataclass(frozen=True, slots=True)
class Use:
    """A place that uses a pattern: the call, and the path after it, if any."""

    declared: Declared
    call: syntax.Call
    path: str | None


def use_of(node: syntax.Expression, names: Names) -> Use | None:
    """Return how an expression uses a pattern; None if it does not."""
    path: str | None = None
    match node:
        case syntax.Member(syntax.Call() as base, name):
            node, path = base, name
        case syntax.Index(syntax.Call() as base, syntax.Literal("string", str(name))):
            node, path = base, name
    if not isinstance(node, syntax.Call):
        return None
    found = names.find(node.name)
    return Use(found, node, path) if isinstance(found, Declared) else None


def case_of(use: Use, values: tuple[object, ...]) -> tuple[syntax.Script, dict[str, object]] | None:
    """Return the query that some arguments and a path choose, and what its names stand for; None if there is none."""
    pattern = use.declared.pattern
    for wanted, path, body in pattern.cases:
        if wanted == values and path == use.path:
            own: dict[str, object] = {each.name: value for each, value in zip(pattern.parameters, values, strict=True)}
            if pattern.path is not None:
                own[pattern.path.name] = use.path
            return body, own
    return None
