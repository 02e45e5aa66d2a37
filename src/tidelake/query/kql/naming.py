"""Name a column that the author left without a name, as KQL does.

It does not know columns.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from tidelake.query.kql import syntax
from tidelake.query.kql.aggregates import AGGREGATES
from tidelake.query.kql.scalar_functions import NAMED_BY_ARGUMENT


def name_of(node: syntax.Expression) -> str | None:
    """Return the name that an expression suggests, or None."""
    match node:
        case syntax.Named(names):
            return names[0]
        case syntax.Name(name):
            return name
        case syntax.Member(base, name):
            before = name_of(base)
            return name if before is None or before.startswith("$") else f"{before}_{name}"
        case syntax.Index(base, syntax.Literal(_, value)):
            before = name_of(base)
            return None if before is None else f"{before}_{value}"
        case syntax.Index(base, syntax.Unary()):
            before = name_of(base)
            return None if before is None else f"{before}_"
        case syntax.Call(name, arguments):
            return _call_name(name, arguments)
        case _:
            return None


def _call_name(name: str, arguments: tuple[syntax.Expression, ...]) -> str | None:
    first = name_of(arguments[0]) if arguments else None
    if name in ("column_ifexists", "columnifexists") and arguments and isinstance(arguments[0], syntax.Literal):
        return str(arguments[0].value)
    if aggregate := AGGREGATES.get(name):
        if name == "percentile" and len(arguments) > 1 and isinstance(arguments[1], syntax.Literal):
            return f"percentile_{first or ''}_{arguments[1].value}".replace(".", "_")
        if name == "percentilew" and len(arguments) > 2 and isinstance(arguments[2], syntax.Literal):
            return f"percentile_{first or ''}_{arguments[2].value}".replace(".", "_")
        if not aggregate.prefix:
            return first
        if name.startswith("covariance") and len(arguments) > 1:
            return f"{name}_{first or ''}_{name_of(arguments[1]) or ''}"
        return f"{aggregate.prefix}_{first or ''}"
    if name == "strlen":
        return f"strlen_{first or ''}"
    return first if name in NAMED_BY_ARGUMENT else None


def nameless(taken: Iterable[str]) -> str:
    """Name a column that nothing names: such columns are counted."""
    return f"Column{sum(re.fullmatch('Column[0-9]+', name) is not None for name in taken) + 1}"


def unique(name: str, taken: Iterable[str]) -> str:
    """Return a name that is not taken, with a number after it if need be."""
    used = set(taken)
    found, count = name, 0
    while found in used:
        count += 1
        found = f"{name}{count}"
    return found
