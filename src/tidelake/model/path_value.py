"""Name what a dynamic column has at a path, as a column that a scan computes. It does not compute it."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

import pyarrow as pa

from tidelake.model.predicate import Leaf

PathForm: TypeAlias = Literal[
    "text",
    "number",
    "flag",
    "plain",
    "test",
    "json",
    "json_but_numbers",
    "json_but_plain",
    "json_but_texts",
    "template",
    "item",
]
TEMPLATE = ""  # in the place of a path: what a text column has once its variables are taken out


class PathValue(NamedTuple):
    """What a dynamic column has at a path, as a column that a scan computes.

    The form says as what: ``text``, ``number`` and ``flag`` are strict, ``plain`` shows texts, whole numbers and
    booleans as text, ``json`` is anything, ``json_but_…`` what the others leave. ``test`` is whether a text passes the
    test, and null of anything else. ``template`` is of a text column, whose path is ``TEMPLATE``: its texts with
    placeholders for their variables. ``item`` is the dynamic value that is there, of which JSON's null is one.
    """

    column: str
    path: str
    form: PathForm
    name: str
    test: Leaf | None = None

    @property
    def arrow(self) -> pa.DataType:
        """The type of the column."""
        types = {"number": pa.float64(), "flag": pa.bool_(), "test": pa.bool_(), "item": pa.binary()}
        return types.get(self.form, pa.utf8())
