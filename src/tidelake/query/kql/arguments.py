"""Hold the arguments of a call, and what a scalar function is: a count of arguments and a rule.

It does not know any function.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tidelake.query.functions.patterns import plain_groups
from tidelake.query.kql.conversions import convert, implicit
from tidelake.query.kql.scope import Scope
from tidelake.query.kql.values import TEXTUAL, Value, literal


@dataclass(frozen=True, slots=True)
class Arguments:
    """The bound arguments of a call, and where it stands."""

    name: str
    values: tuple[Value, ...]
    scope: Scope
    at: int
    places: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: int) -> Value:
        return self.values[index]

    def error(self, message: str, index: int | None = None, *, kind: str = "bind") -> Exception:
        at = self.at if index is None or index >= len(self.places) else self.places[index]
        return self.scope.error(at, message, kind=kind)

    def as_type(self, index: int, kind: str) -> Value:
        """Return an argument as a type; any scalar has a text."""
        value = self.values[index]
        if kind == "any":
            return value
        if kind == "regex":
            found = self.as_type(index, "text")
            return literal(plain_groups(found.constant), "string") if found.is_constant and found.constant else found
        if kind == "text":
            return Value(value.sql, "string", value.constant) if value.type in TEXTUAL else convert(value, "string")
        converted = implicit(value, kind)
        if converted is None:
            raise self.error(
                f"argument {index + 1} of {self.name} must be {kind}, this is {value.type}", index, kind="type"
            )
        return converted

    def constant(self, index: int, what: str) -> Any:
        if not self.values[index].is_constant:
            raise self.error(f"{what} of {self.name} must be a constant", index)
        return self.values[index].constant


Rule = Callable[[Arguments], Value]


@dataclass(frozen=True, slots=True)
class ScalarFunction:
    """A scalar function: how many arguments it takes, and its rule."""

    name: str
    least: int
    most: int
    rule: Rule
    result: str = ""
