"""Part what a snapshot added among the commits that share it.

A catalog keeps, or can tell, how many extents and hot batches each commit of a snapshot added, in the order in which
they were published; what the snapshot added is in that order too. So no extent needs to name its commit. It does not
read a catalog.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from tidelake.errors import CorruptError, InvalidInputError
from tidelake.model.snapshot import Scope


@dataclass(frozen=True, slots=True)
class Share:
    """How many extents and hot batches of a snapshot are one commit's."""

    commit_id: str
    extents: int
    hot_batches: int


@dataclass(frozen=True, slots=True)
class Contribution:
    """What one commit added to its snapshot: the ids of extents and of hot batches."""

    commit_id: str
    extents: tuple[str, ...]
    hot: tuple[str, ...]


def part(shares: Iterable[Share], extents: Sequence[str], hot: Sequence[str]) -> list[Contribution]:
    """Give every commit what it added; CorruptError if the shares are not all of it."""
    added, batches = iter(extents), iter(hot)
    found = [
        Contribution(
            share.commit_id, tuple(islice(added, share.extents)), tuple(islice(batches, share.hot_batches))
        )
        for share in shares
    ]  # fmt: skip
    counted = sum(len(each.extents) for each in found), sum(len(each.hot) for each in found)
    if counted != (len(extents), len(hot)) or any(True for _ in (*added, *batches)):
        raise CorruptError("the commits of a snapshot do not add up to what it added", kind="bad_catalog")
    return found


def not_recorded(scope: Scope, sequence: int, commits: int) -> InvalidInputError:
    """Return the error for a snapshot of several commits, written by a program that did not record their parts."""
    return InvalidInputError(
        "the snapshot was written before it was recorded which of its commits added what: delete its rows by a "
        "condition, or restore an older snapshot",
        scope=scope, snapshot=sequence, commits=commits, kind="not_recorded",
    )  # fmt: skip
