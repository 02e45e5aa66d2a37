"""Find what a field of a struct is, as statistics and scans know it: a path of the column that keeps it.

Only fields are found whose stored values compare as their own do: whole numbers, doubles, booleans and texts. It does
not push anything down: see ``conjuncts``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlglot import exp

from tidelake.model.schema import DataType

NUMBERS = ("tinyint", "smallint", "int", "long", "real")
_COMPARABLE = ("bool", "string", *NUMBERS)


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a struct column, by the path to it."""

    column: str
    path: str
    kind: str


def field_of(node: exp.Expr, types: Mapping[str, DataType]) -> Field | None:
    """Return the field that dotted names stand for, whatever their case, or None if it is none that compares."""
    names: list[str] = []
    while isinstance(node, exp.Dot):
        names.insert(0, node.expression.name)
        node = node.this
    held = types.get(node.name) if isinstance(node, exp.Column) else None
    kind = None if held is None else held.logical
    path: list[str] = []
    for name in names:
        own = [] if kind is None else [at for at, each in enumerate(kind.names) if each.lower() == name.lower()]
        if kind is None or len(own) != 1 or any(sign in kind.names[own[0]] for sign in ".["):
            return None
        path.append(kind.names[own[0]])
        kind = kind.parts[own[0]]
    if kind is None or not path or kind.kind not in _COMPARABLE:
        return None
    return Field(node.name, ".".join(path), kind.kind)


def compares(value: object, kind: str) -> bool:
    """Whether a constant is compared with a field as it is: engines convert text that meets a number."""
    if isinstance(value, bool) or kind == "bool":
        return isinstance(value, bool) and kind == "bool"
    return isinstance(value, str) == (kind == "string")
