"""Keep track of objects on their way in and on their way out of a log table.

::

    announced ──commit──▶ extent ──removed, and every snapshot with it expired──▶ garbage ──▶ forgotten
        └──────────────────released or abandoned, by an entry of the log───────────▲

An announcement is an object of its own, ``_timeseries_log/_pending/<SHA-256 of the key>.json``, written before the
first byte of what it announces. It is over once the log says that its key is in or was given up, even if a crash left
the object there; deleting it is tidiness. So a commit needs the announcement to be there *and* the log not to have
given it up, and because giving up is an entry, the two cannot pass each other. A key is forgotten as garbage only
after its announcement was deleted, so that one that was given up cannot be committed later either. It does not delete
extents.
"""

from __future__ import annotations

import hashlib
import logging
import random
import secrets
import time
from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence
from typing import TypeVar
from weakref import WeakSet

from tidelake.catalog.log.entries import TIDE_VERSION, Entry, Upkeep, seal, unseal
from tidelake.catalog.log.journal import Journal
from tidelake.catalog.log.leases import LogLeases
from tidelake.catalog.log.reading import LogReader, check_scope, check_writable
from tidelake.catalog.log.state import LogState, keys_held, keys_let_go
from tidelake.catalog.log.work import LogWorkQueue, Proposal
from tidelake.catalog.names import check_owner, check_pin_name
from tidelake.catalog.protocol import (
    Clock,
    Expired,
    Garbage,
    Pending,
    Pin,
    Readers,
    Retained,
    let_unused_go,
    new_id,
)
from tidelake.errors import (
    AlreadyExistsError,
    CorruptError,
    InvalidInputError,
    NotFoundError,
    StorageError,
    UnavailableError,
)
from tidelake.model.snapshot import RemoveExtent, Scope, make_id
from tidelake.objects import LOG_FOLDER

PENDING_FOLDER = f"{LOG_FOLDER}/_pending"
UPKEEP_TRIES = 200  # each loss is somebody's commit
LONGEST_PAUSE_S = 0.05

Answer = TypeVar("Answer")

_logger = logging.getLogger(__name__)


class LogSweeper(LogReader):
    """The part of the log catalog that knows what is on its way in and out."""

    def __init__(self, journal: Journal, clock: Clock) -> None:
        super().__init__(journal)
        self._store = journal.store
        self._clock = clock
        self._announced: dict[str, int] = {}  # by this catalog, and the version of the log at that time
        self.readers: WeakSet[Readers] = WeakSet()
        self._leases = LogLeases(journal.store, clock)
        self.work = LogWorkQueue(self._amend, self._newest, clock, new_id)

    def register_pending(self, pending: Sequence[Pending]) -> None:
        """Announce objects before their first byte is written; AlreadyExistsError if a key is taken."""
        self._journal.ensure_conditions()
        with self._journal.lock:
            state = self._newest()
            version = state.version
            for each in pending:
                check_writable(state, each.scope)
                if each.key in state.garbage:
                    raise AlreadyExistsError("an object of this key is garbage", key=each.key)
        done: list[str] = []
        try:
            for each in pending:
                self._announce(each)
                done.append(each.key)
        except BaseException:
            self._delete_announcements(done)
            raise
        self._announced.update(dict.fromkeys(done, version))

    def register_segment(self, scope: Scope, *, folder: str, owner: str) -> str:
        """Refuse: the layout beside a log has no numbered segments."""
        raise InvalidInputError("a transaction log holds no numbered segments", folder=folder, kind="no_segments")

    def forget_pending(self, keys: Collection[str]) -> None:
        """Take registrations back whose names turned out to be other programs' objects: they are not garbage."""
        self._delete_announcements(keys)

    def pending(self, *, table_id: str | None = None) -> list[Pending]:
        """List the objects that writers announced and did not commit yet, oldest first."""
        found = self._announcements()  # first, so that what is committed meanwhile is known to be
        with self._journal.lock:
            state = self._journal.refresh()
            over = {*keys_held(state), *state.garbage} if state else set()
        waiting = [each for each in found if each.key not in over and table_id in (None, each.scope.table_id)]
        return sorted(waiting, key=lambda each: (each.since_us, each.key))

    def release_pending(self, keys: Collection[str]) -> list[str]:
        """Give up registrations of this caller's own, so that their objects are garbage; those that were there."""
        return self._give_up([key for key in dict.fromkeys(keys) if self._is_announced(key)])

    def abandon_pending(self, *, before_us: int) -> list[str]:
        """Give up registrations made before a time, so that their objects are garbage and cannot be committed."""
        return self._give_up([each.key for each in self.pending() if each.since_us < before_us])

    def pin(self, scope: Scope, name: str, sequence: int) -> Pin:
        """Keep a snapshot by a name until it is unpinned; here, all that came after it is kept besides."""
        check_pin_name(name)

        def propose(state: LogState) -> tuple[Upkeep | None, Pin]:
            self._check_retained(check_scope(state, scope), sequence)
            held = state.pins.get(name)
            if held is None:
                pinned = Pin(name, sequence, self._clock())
                return Upkeep("pin", pinned=(pinned,)), pinned
            if held.sequence != sequence:
                raise AlreadyExistsError("a pin of this name keeps another snapshot", pin=name, keeps=held.sequence)
            return None, held

        return self._amend(propose)

    def unpin(self, scope: Scope, name: str) -> None:
        """Let a pinned snapshot go with the next expiry; NotFoundError if no pin has the name."""

        def propose(state: LogState) -> tuple[Upkeep | None, None]:
            if name not in check_scope(state, scope).pins:
                raise NotFoundError("no such pin", pin=name, scope=scope, kind="no_pin")
            return Upkeep("unpin", unpinned=(name,)), None

        self._amend(propose)

    def pins(self, scope: Scope) -> list[Pin]:
        """List the pins of a scope, the oldest snapshot's first."""
        with self._reading(scope) as state:
            return sorted(state.pins.values(), key=lambda pin: (pin.sequence, pin.name))

    def lease(self, scope: Scope, *, owner: str, sequence: int, lease_us: int) -> None:
        """Keep the objects of a snapshot and of all after it for a time, or for more time; see ``leases``."""
        check_owner(owner)
        if sequence == 0:
            return  # of a user without commits
        held = self._leases.own(owner)
        try:
            version = self._retained_at(scope, sequence)  # 1
        except NotFoundError:
            if held is None or held.sequence > sequence:
                raise
            sequence, version = held.sequence, held.version
        self._leases.put(owner, sequence, version, lease_us)  # 2
        if held is None:
            try:
                self._retained_at(scope, sequence)  # 3
            except NotFoundError:
                self._leases.release(owner)
                raise

    def release_leases(self, owner: str, scopes: Collection[Scope]) -> None:
        """Give an owner's leases back; those that it does not have are passed over."""
        if scopes:
            self._leases.release(owner)

    def _retained_at(self, scope: Scope, sequence: int) -> int:
        """Return the newest version, at which a snapshot must be retained."""
        with self._reading(scope) as state:
            self._check_retained(state, sequence)
            return state.version

    def expire_snapshots(self, scope: Scope, *, before_us: int, keep_last: int = 1) -> Expired:
        """Let go of the snapshots that ended before a time and before every pin, and of what only they could reach.

        A lease that comes while this is under way does not keep its snapshot, but its objects.
        """
        if keep_last < 1:
            raise InvalidInputError("at least the newest snapshot is kept", keep_last=keep_last)
        let_unused_go(self.readers)
        leased = [each.sequence for each in self._leases.valid(tidy=True)]

        def propose(state: LogState) -> tuple[Upkeep | None, Expired]:
            in_force = self._sequence_at(check_scope(state, scope), before_us)
            if scope.user or in_force is None:
                return None, Expired(0, ())
            kept = [*leased, *(pin.sequence for pin in state.pins.values())]
            oldest = max(min(in_force, state.head.sequence - keep_last + 1, *kept), state.oldest)
            if oldest == state.oldest:
                return None, Expired(0, ())
            keys = keys_let_go(state, oldest)
            garbage = self._garbage_of(state, keys, "expired")
            return Upkeep("expire", oldest=oldest, garbage=garbage), Expired(oldest - state.oldest, tuple(keys))

        return self._amend(propose)

    def retained(self, scope: Scope, *, before_us: int) -> Retained:
        """Count the snapshots of a scope, and those that an expiry would let go of, but for leases."""
        with self._reading(scope) as state:
            in_force = self._sequence_at(state, before_us)
            pinned = [pin.sequence for pin in state.pins.values()]
            due = 0 if in_force is None else max(min(in_force, state.head.sequence, *pinned) - state.oldest, 0)
            count = state.head.sequence - state.oldest + 1
            return Retained(count, self._time_of(state.oldest), due)

    def shrink(self) -> int:
        """Return 0: a log is never shortened, because the original's readers replay it from the beginning."""
        return 0

    def expire_receipts(self, *, before_us: int) -> int:
        """Forget ids and keys of commits before a time, so that a later replay of them is a new commit."""

        def propose(state: LogState) -> tuple[Upkeep | None, int]:
            known = [*sorted(set(state.commits.values())), state.head.sequence + 1]
            kept = known[bisect_left(known, before_us, hi=len(known) - 1, key=self._time_of)]
            count = sum(sequence < kept for sequence in state.commits.values())
            return (Upkeep("forget_commits", first_kept=kept) if count else None), count

        return self._amend(propose) if self._journal.refresh() else 0

    def purge_tables(self, *, before_us: int, table_id: str | None = None) -> Expired:
        """Let go of all that the table held, if it was dropped before a time and is the one that is meant."""

        def propose(state: LogState) -> tuple[Upkeep | None, Expired]:
            dropped_us = state.info.dropped_us
            is_meant = table_id in (None, state.info.id)
            if state.purged or not is_meant or dropped_us is None or dropped_us >= before_us:
                return None, Expired(0, ())
            keys = sorted({*keys_held(state), *waiting})
            garbage = self._garbage_of(state, keys, "dropped")
            snapshots = state.head.sequence - state.oldest + 1
            return Upkeep("purge", purged=True, garbage=garbage), Expired(snapshots, tuple(keys))

        let_unused_go(self.readers)
        if self._journal.refresh() is None:
            return Expired(0, ())
        waiting = [each.key for each in self._announcements()]
        purged = self._amend(propose)
        if purged.snapshots:
            self._delete_announcements(waiting)
        return purged

    def garbage(self, *, before_us: int, limit: int = 1000) -> list[Garbage]:
        """List objects that nothing could reach since before a time, oldest first.

        Left out is what a reader with a lease may still know; what was never committed is known to none.
        """
        with self._journal.lock:
            state = self._journal.refresh()
            old = [each for each in state.garbage.values() if each.since_us < before_us] if state else []
            given_at = {each.key: state.given_at[each.key] for each in old} if state else {}
        seen = [each.version for each in self._leases.valid()] if old else []  # after the log was read: see leases
        found = [
            each for each in old if each.reason == "abandoned" or all(given_at[each.key] <= version for version in seen)
        ]
        return sorted(found, key=lambda each: (each.since_us, each.key))[:limit]

    def forget_garbage(self, keys: Collection[str]) -> None:
        """Take keys off the list, once their objects are deleted."""

        def propose(state: LogState) -> tuple[Upkeep | None, None]:
            forgotten = tuple(key for key in dict.fromkeys(keys) if key in state.garbage)
            self._delete_announcements(forgotten, strict=True)  # before it can no longer be told that they are over
            return (Upkeep("forget_garbage", forgotten=forgotten) if forgotten else None), None

        self._amend(propose)

    def _amend(self, propose: Proposal[Answer]) -> Answer:
        """Append what a proposal makes of the newest state, if anything, and give its answer."""
        for attempt in range(UPKEEP_TRIES):
            with self._journal.lock:
                state = self._newest()
                upkeep, answer = propose(state)
                if upkeep is None:
                    return answer
                version, at_us = state.version + 1, max(self._clock(), state.at_us)
                live = state.extents.at(state.head.sequence) if upkeep.purged else ()
            changes = tuple(RemoveExtent(extent.id) for extent in live)
            entry = Entry(version, make_id(version, secrets.randbits(76)), at_us, changes, upkeep=upkeep)
            if self._journal.append(entry):
                return answer
            time.sleep(random.random() * min(LONGEST_PAUSE_S, 0.001 * 2 ** min(attempt, 10)))
        raise UnavailableError("the log is too busy: an entry did not get its turn", tries=UPKEEP_TRIES)

    def _newest(self) -> LogState:
        state = self._journal.refresh()
        if state is None:
            raise NotFoundError("no table here: no commits, version 0", store=self._store.url, kind="no_table")
        return state

    def _give_up(self, keys: Collection[str]) -> list[str]:
        if not keys:
            return []

        def propose(state: LogState) -> tuple[Upkeep | None, list[str]]:
            over = {*keys_held(state), *state.garbage}
            given = [key for key in keys if key not in over]
            return (Upkeep("abandon", garbage=self._garbage_of(state, given, "abandoned")) if given else None), given

        given = self._amend(propose)
        self._delete_announcements(given)
        return given

    def _garbage_of(self, state: LogState, keys: Iterable[str], reason: str) -> tuple[Garbage, ...]:
        now = self._clock()
        return tuple(Garbage(key, state.info.id, now, reason) for key in keys)

    def _is_pending(self, state: LogState, key: str) -> bool:
        """Return whether an object may be committed on top of a state.

        What this catalog announced itself is known to be there, unless something was given up since.
        """
        known = self._announced.get(key, -1) >= state.given_up
        return key not in state.garbage and (known or self._is_announced(key))

    def _announce(self, each: Pending) -> None:
        body = {"key": each.key, "table": each.scope.table_id, "owner": each.owner, "since_us": self._clock()}
        try:
            self._store.put_if_absent(_pending_key(each.key), seal({"format": TIDE_VERSION, **body}))
        except AlreadyExistsError as error:
            raise AlreadyExistsError("an object is announced already", key=each.key) from error

    def _is_announced(self, key: str) -> bool:
        try:
            self._store.head(_pending_key(key))
            return True
        except NotFoundError:
            return False

    def _announcements(self) -> list[Pending]:
        found = []
        for meta in self._store.list(PENDING_FOLDER):
            try:
                body = unseal(bytes(self._store.get(meta.key)))["tide"]
                found.append(Pending(body["key"], Scope(body["table"]), body["owner"], body["since_us"]))
            except NotFoundError:
                pass  # committed or given up just now
            except CorruptError as error:
                _logger.warning("an announcement is passed over file=%s store=%s: %s", meta.key, self._store.url, error)
        return found

    def _delete_announcements(self, keys: Collection[str], *, strict: bool = False) -> None:
        for key in keys:
            self._announced.pop(key, None)
        if not keys:
            return
        try:
            self._store.delete([_pending_key(key) for key in keys])
        except StorageError:
            if strict:
                raise


def _pending_key(key: str) -> str:
    """Name an announcement; a hash, because a key may be longer than a file's name."""
    return f"{PENDING_FOLDER}/{hashlib.sha256(key.encode()).hexdigest()}.json"
