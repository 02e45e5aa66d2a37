"""Name the parts of a KQL text, as plain values with their place.

A pipeline is an expression like any other, because KQL lets one stand inside ``in (…)``, ``toscalar(…)`` and
``materialize(…)``. ``at`` is where the part begins in the text. It does not know what names mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias


@dataclass(frozen=True, slots=True)
class Name:
    name: str
    at: int


@dataclass(frozen=True, slots=True)
class Wildcard:
    """A name with stars, such as ``Security*`` or ``*``."""

    pattern: str
    at: int


@dataclass(frozen=True, slots=True)
class Literal:
    """A value of a KQL type; None is that type's null. A dynamic's value is what JSON says."""

    type: str
    value: Any
    at: int


@dataclass(frozen=True, slots=True)
class Unreadable:
    """The text of a typed literal whose value is not of its type."""

    text: str


@dataclass(frozen=True, slots=True)
class TypeName:
    """A type as an argument: ``typeof(string)``, or several named ones."""

    columns: tuple[tuple[str, str], ...]
    at: int


@dataclass(frozen=True, slots=True)
class Call:
    name: str
    arguments: tuple[Expression, ...]
    at: int


@dataclass(frozen=True, slots=True)
class Named:
    """``name = value``; several names for a value of several parts."""

    names: tuple[str, ...]
    value: Expression
    at: int


@dataclass(frozen=True, slots=True)
class Unary:
    operator: str
    operand: Expression
    at: int


@dataclass(frozen=True, slots=True)
class Binary:
    operator: str
    left: Expression
    right: Expression
    at: int


@dataclass(frozen=True, slots=True)
class Junction:
    """Several conditions with ``and``, or with ``or``, between them."""

    operator: str
    parts: tuple[Expression, ...]
    at: int


@dataclass(frozen=True, slots=True)
class Among:
    """``left in (…)`` and its kin: in~, !in, !in~, has_any, has_all."""

    operator: str
    left: Expression
    options: tuple[Expression, ...]
    at: int


@dataclass(frozen=True, slots=True)
class Between:
    operand: Expression
    low: Expression
    high: Expression
    negated: bool
    at: int


@dataclass(frozen=True, slots=True)
class Member:
    base: Expression
    name: str
    at: int


@dataclass(frozen=True, slots=True)
class Index:
    base: Expression
    index: Expression
    at: int


@dataclass(frozen=True, slots=True)
class DataTable:
    columns: tuple[tuple[str, str], ...]
    values: tuple[Expression, ...]
    at: int


@dataclass(frozen=True, slots=True)
class ExternalData:
    columns: tuple[tuple[str, str], ...]
    addresses: tuple[Expression, ...]
    options: tuple[tuple[str, Expression], ...]
    at: int


@dataclass(frozen=True, slots=True)
class Parameter:
    """A function's parameter; a tabular one has columns, and ``open`` if it ends with a star."""

    name: str
    type: str
    columns: tuple[tuple[str, str], ...] | None
    default: Expression | None
    at: int


@dataclass(frozen=True, slots=True)
class Function:
    parameters: tuple[Parameter, ...]
    body: Script
    at: int
    is_view: bool = False  # it counts as a table where all are asked


@dataclass(frozen=True, slots=True)
class Pattern:
    """A declared pattern: for each choice of constants, and of a path after them, the query that is meant."""

    parameters: tuple[Parameter, ...]
    path: Parameter | None
    cases: tuple[tuple[tuple[Any, ...], str | None, Script], ...]
    at: int


@dataclass(frozen=True, slots=True)
class Pipe:
    """A source and the operators its rows pass through."""

    source: Expression
    operators: tuple[Operator, ...]
    at: int


@dataclass(frozen=True, slots=True)
class Ordering:
    value: Expression
    descending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True)
class Operator:
    """A tabular operator: its name, its items by role, and its ``name=value`` settings.

    ``items`` is the main list. ``parts`` holds the rest under the word that introduces it: ``by``, ``on``, ``to`` …
    """

    name: str
    items: tuple[Any, ...]
    at: int
    parts: Mapping[str, Any]
    settings: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Let:
    name: str
    value: Expression | Pattern
    at: int


@dataclass(frozen=True, slots=True)
class Other:
    """A statement that says how to run, not what: ``set``, ``declare``, ``alias``, ``restrict``."""

    keyword: str
    parameters: tuple[Parameter, ...]
    at: int


@dataclass(frozen=True, slots=True)
class Script:
    """The statements of a text; the query is the last expression, if there is one."""

    statements: tuple[Let | Other, ...]
    query: Expression | None
    text: str


Expression: TypeAlias = (
    Name | Wildcard | Literal | TypeName | Call | Named | Unary | Binary | Junction | Among | Between | Member | Index
    | DataTable | ExternalData | Function | Pipe
)  # fmt: skip
