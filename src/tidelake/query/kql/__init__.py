"""Turn KQL text into a tree that both engines run.

``parse`` gives the syntax, ``lower`` the tree with every name resolved. Both raise a QueryError that shows the place.
It does not read tables, plan scans or run anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlglot import exp

from tidelake.query.tables import Tables


@dataclass(frozen=True, slots=True)
class Render:
    """How the author wants the result drawn: a hint."""

    kind: str
    properties: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Lowered:
    """A query as a tree, the names and KQL types of its result's columns, and the hint to draw it."""

    tree: exp.Query
    columns: tuple[tuple[str, str], ...]
    render: Render | None = None


def parse(text: str) -> Any:
    """Give the syntax of a KQL text."""
    raise NotImplementedError


def lower(text: str, tables: Tables, *, now: datetime) -> Lowered:
    """Give the tree of a KQL text over some tables, with ``now()`` fixed."""
    raise NotImplementedError
