"""Name the states of a scope's manifest, and what leads from one to another.

=============  ====================================================  ==================================================
state          since                                                 left by
=============  ====================================================  ==================================================
in_sync        ``manifest.json`` lists all there is, no row is hot   an append of hot rows, a commit of segments
pending_write  rows are hot, or ``manifest.json`` is behind          a flush; whoever looks next writes the file
syncing        a flush or a write of ``manifest.json`` is under way  its end; at start, it is pending_write again
stale          a copy was found wrong                                loading it again from the next slower tier
error          a write failed; with the reason                       trying again, after a wait that doubles each time
=============  ====================================================  ==================================================

The catalog alone says what a scope holds, so a state tells what is to be done and never what is true. It does not keep
states: see ``node_tier``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args

import orjson

from tidelake.errors import CorruptError

State: TypeAlias = Literal["in_sync", "pending_write", "syncing", "stale", "error"]
Tier: TypeAlias = Literal["memory", "rocksdb", "manifest.json", "catalog"]
STATES: tuple[State, ...] = get_args(State)

FIRST_WAIT_US = 1_000_000  # after the first failure; each further one doubles it
LONGEST_WAIT_US = 3600 * 1_000_000
NEVER_US = 2**62  # when what nobody asked to flush is due
MAX_REASON = 500  # characters of an error that are kept


@dataclass(frozen=True, slots=True)
class Mark:
    """The state of one scope, since when, and when somebody is to look at it."""

    state: State
    since_us: int
    due_us: int | None = None  # None: nothing is to be done
    attempts: int = 0  # that failed, in a row
    error: str | None = None
    is_doubted: bool = False  # a copy was found wrong, and none was made anew since


@dataclass(frozen=True, slots=True)
class Held:
    """What a copy of a manifest says of itself; its list of segments is kept apart."""

    sequence: int  # the snapshot at which the list is right
    snapshot: str  # its id
    version: int  # the sequence at which the list changed last
    written: int  # the version that manifest.json is known to have, -1 if not known
    refreshed_us: int
    segments: int
    rows: int
    bytes: int
    created_ms: int = 0
    last_batch: int = 0
    files: Mapping[str, int] | None = None
    vector_indexes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def failed(before: Mark | None, reason: str, now_us: int) -> Mark:
    """Return the state after a write that failed."""
    attempts = (before.attempts if before is not None else 0) + 1
    wait_us = min(LONGEST_WAIT_US, FIRST_WAIT_US * 2 ** min(attempts - 1, 20))
    doubted = before is not None and before.is_doubted
    return Mark("error", now_us, now_us + wait_us, attempts, reason[:MAX_REASON], doubted)


def recovered(mark: Mark, now_us: int) -> Mark:
    """Return the state of a scope whose writer is gone, as the next one finds it."""
    if mark.state != "syncing":
        return mark
    return Mark("pending_write", now_us, now_us, mark.attempts, is_doubted=mark.is_doubted)


def to_bytes(value: Mark | Held) -> bytes:
    """Return a stored value."""
    return orjson.dumps(value)


def mark_from(data: bytes) -> Mark:
    """Read a stored state, strictly: one that is not known is CorruptError."""
    try:
        mark = Mark(**orjson.loads(data))
    except (TypeError, ValueError) as error:
        raise CorruptError("not a stored state", reason=error, kind="bad_manifest") from error
    if mark.state not in STATES or type(mark.attempts) is not int:
        raise CorruptError("not a state of a manifest", state=str(mark.state)[:40], kind="bad_manifest")
    return mark


def held_from(data: bytes) -> Held:
    """Read what a copy says of itself, strictly."""
    try:
        held = Held(**orjson.loads(data))
    except (TypeError, ValueError) as error:
        raise CorruptError("not a stored manifest", reason=error, kind="bad_manifest") from error
    whole = (held.sequence, held.version, held.written, held.segments, held.rows, held.bytes)
    if any(type(each) is not int for each in whole) or not isinstance(held.snapshot, str):
        raise CorruptError("not a stored manifest", kind="bad_manifest")
    return held
