"""Hold the functions that mean the same on both engines, and write a tree as an engine's SQL.

A tree names a portable function as an anonymous call, such as ``tide_has(message, 'error')``. It does not run SQL.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from sqlglot import exp

Engine = Literal["duckdb", "spark"]
Rendering = Callable[[Sequence[exp.Expression]], exp.Expression]


@dataclass(frozen=True, slots=True)
class Function:
    """A function under one name on both engines, and how each writes it."""

    name: str
    duckdb: Rendering
    spark: Rendering


FUNCTIONS: Mapping[str, Function] = {}


def render(tree: exp.Expression, engine: Engine) -> str:
    """Write a tree as SQL of an engine."""
    return tree.transform(_native, engine).sql(dialect=engine)


def _native(node: exp.Expression, engine: Engine) -> exp.Expression:
    if isinstance(node, exp.Anonymous) and (function := FUNCTIONS.get(node.name.lower())):
        return getattr(function, engine)(node.expressions)
    return node
