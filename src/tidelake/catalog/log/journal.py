"""Read and lengthen the transaction log of one table root.

::

    _timeseries_log/CURRENT                              "41\\n": a hint where the end of the log is
    _timeseries_log/0000000041.json                      one entry; creating it is the commit
    _timeseries_log/_checkpoints/0000000040.json         all that the entries up to this one say
    _timeseries_log/_checkpoints/0000000050.tail.json    the entries since a checkpoint, together
    _timeseries_log/_unfinished/0000000042.json          what another program left half written, kept as evidence

An entry is appended in numbered steps; after the first it is in, whatever becomes of the others:

1. create ``N+1`` if it is absent: of several writers one wins. If the answer is lost, ``N+1`` tells by its id whose it
   is; if it is not there, the same bytes are sent again, so that a late arrival of the first try does no harm
2. follow it in memory
3. write ``CURRENT``
4. write a checkpoint or a tail, if one is due by the version's number; older ones are deleted

The end of the log is found from ``CURRENT`` and then by asking for the next entry until there is none, so an entry that
``CURRENT`` does not tell of is adopted. If ``CURRENT`` is missing, is no number or points past the end, the folder is
listed. Whoever opens a log and finds ``CURRENT`` wrong writes it anew. Entries are never deleted or rewritten: other
programs replay the log from its beginning.

What is no whole entry is CorruptError and names the file, with one exception. Our entries appear whole or not at all,
but the original's writer fills a file that it has created. So a last file that breaks off, does not begin as ours do
and that ``CURRENT`` does not tell of was never acknowledged: readers pass over it, and once it is a minute old a writer
puts an empty entry in its place, the same whoever does it.

A checkpoint is checked before it is believed. One that is damaged is passed over with a warning, for the entries say
the same. It does not know what a catalog is asked.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace

import orjson

from tidelake.catalog.log.entries import (
    PINS_VERSION,
    TIDE_VERSION,
    Entry,
    Unfinished,
    decode,
    encode,
    from_document,
    seal,
    unseal,
    void,
)
from tidelake.catalog.log.state import LogState, follow, from_json, lightened, start, to_json, version_of
from tidelake.catalog.protocol import Clock, StepHook
from tidelake.errors import (
    AlreadyExistsError,
    CommitUnknownError,
    CorruptError,
    NotFoundError,
    StorageError,
    TidelakeError,
)
from tidelake.model.snapshot import HotBatch
from tidelake.objects import (
    LOG_CURRENT,
    LOG_FOLDER,
    ObjectStore,
    ensure_conditional_put,
    log_checkpoint_key,
    log_commit_key,
)
from tidelake.runtime.forking import renew_after_fork

CHECKPOINT_FOLDER = f"{LOG_FOLDER}/_checkpoints"

CHECKPOINT_EVERY = 100  # entries, while a checkpoint holds up to CHECKPOINT_SIZE things; twice as many, half as often
CHECKPOINT_SIZE = 10_000
TAIL_EVERY = 10  # entries: opening reads at most so many of them
TAIL_BYTES = 4 << 20  # a longer tail, full of hot rows, costs more to write again and again than to read once
READERS = 8  # requests at once for entries that are said to be there
BATCH = 256  # entries asked for together, so that a wrong hint costs little
RELOAD_AFTER = 200  # so many entries behind, a checkpoint is nearer
ENTRIES_KEPT = 1024  # headers in memory
UNFINISHED_US = 60_000_000  # how long another program may take to fill a file it has created
PUBLISH_TRIES = 3
PUBLISH_S = 5.0  # after which an entry is not sent again from here

_ENTRY_NAME = re.compile(rf"{LOG_FOLDER}/(\d{{10}})\.json")
_CHECKPOINT_NAME = re.compile(rf"{CHECKPOINT_FOLDER}/(\d{{10}})(\.tail)?\.json")
_logger = logging.getLogger(__name__)


class Journal:
    """The log of one root, followed in memory. Threads may share it; hold ``lock`` while reading what it returns."""

    def __init__(self, store: ObjectStore, name: str, *, clock: Clock, at: StepHook) -> None:
        self.store = store
        self.lock = threading.RLock()
        self._name = name
        self._clock = clock
        self._at = at
        self._is_probed = False
        self._state: LogState | None = None
        self._entries: dict[int, Entry] = {}  # by sequence, without rows
        self._base = 0  # the version of the last checkpoint that was due
        self._since: list[bytes] = []  # the entries after it, up to TAIL_BYTES
        self._since_bytes = 0
        renew_after_fork(self)

    def renew_after_fork(self) -> None:
        """Read the log anew: a thread of the parent may have been following it."""
        self.lock = threading.RLock()
        self._forget()

    def refresh(self) -> LogState | None:
        """Follow the log to its end; None if there is none."""
        with self.lock:
            if self._state is not None:
                self._catch_up()
                return self._state
            try:
                self._load()
            except BaseException:
                self._forget()  # half a log is no answer
                raise
            return self._state

    def state(self) -> LogState | None:
        """Return what is known without asking the store, unless nothing is."""
        with self.lock:
            return self._state or self.refresh()

    def append(self, entry: Entry) -> bool:
        """Make an entry the next one; False if another is, which is followed by then.

        A store that ignores the condition is refused first: it would put an entry in the place of another.
        """
        self.ensure_conditions()
        data = encode(entry)
        self._at("log.begin")
        if not self._publish(entry.version, entry.id, data):  # 1
            self._yield_to(entry.version)
            return False
        self._at("log.published")
        with self.lock:
            if entry.version == (self._state.version if self._state else 0) + 1:
                self._follow(self._decode(entry.version, data), data)  # 2
        self._at("log.followed")
        self._try("CURRENT", lambda: self._point_to(entry.version))  # 3
        self._at("log.pointed")
        self._try("a checkpoint", lambda: self._checkpoint(entry.version))  # 4
        self._at("log.end")
        return True

    def ensure_conditions(self) -> None:
        """Refuse a store that ignores the condition of a conditional put; asked once by each journal."""
        if not self._is_probed:
            ensure_conditional_put(self.store)
            self._is_probed = True

    def entry(self, sequence: int) -> Entry:
        """Return the entry that made a snapshot, without rows."""
        with self.lock:
            state = self._state
            assert state is not None
            found = state.plain.get(sequence) or self._entries.get(sequence)
            if found is None:
                found = self._keep(self._whole(sequence))
            return found

    def rows_of(self, batches: Iterable[HotBatch]) -> list[HotBatch]:
        """Return hot batches with their rows, which those that are gone have only in the log."""
        return [batch if batch.removed_seq is None else self._with_rows(batch) for batch in batches]

    def _with_rows(self, batch: HotBatch) -> HotBatch:
        mark = self._whole(batch.added_seq).mark
        for held in mark.hot if mark else ():
            if held.id == batch.id:
                return replace(batch, payload=held.payload)
        raise CorruptError("hot rows are not where they were committed", batch=batch.id, sequence=batch.added_seq)

    def _whole(self, sequence: int) -> Entry:
        with self.lock:
            assert self._state is not None
            version = version_of(self._state, sequence)
        data = self._get(version)
        if data is None:
            raise self._missing(version)
        return self._decode(version, data)

    def _keep(self, entry: Entry) -> Entry:
        if entry.mark is None:
            return entry
        if len(self._entries) >= ENTRIES_KEPT:
            self._entries.clear()
        light = lightened(entry)
        self._entries[entry.mark.sequence] = light
        return light

    # the end of the log

    def _load(self) -> None:
        hint = self._hint()
        begun = self._from_checkpoint()
        self._catch_up(upto=hint or 0)
        state = self._state
        version = state.version if state else 0
        if hint is None or hint > version:
            self._check_listed(version)
        elif begun == version > hint and self._get(version) is None:
            raise self._missing(version)
        if state is not None and hint != version:
            self._try("CURRENT", lambda: self._point_to(version))

    def _catch_up(self, upto: int = 0) -> None:
        """Follow entries until there is none; those up to ``upto`` are said to be there."""
        unannounced = 0
        while True:
            version = (self._state.version if self._state else 0) + 1
            last = min(max(upto, version), version + BATCH)
            for at, data in enumerate(self._get_many(range(version, last + 1)), start=version):
                if data is None or not self._accept(at, data):
                    return
            unannounced += upto < version
            if unannounced == READERS and (upto := self._hint() or 0) > version + RELOAD_AFTER:
                self._from_checkpoint()

    def _accept(self, version: int, data: bytes) -> bool:
        """Follow one entry; False if it is one that another program has not finished."""
        try:
            entry = self._decode(version, data)
        except Unfinished:
            if self._is_abandoned(version):
                return False
            raise self._damaged(version, "it breaks off") from None
        self._follow(entry, data)
        return True

    def _follow(self, entry: Entry, data: bytes) -> None:
        try:
            if self._state is None:
                self._state = start(entry, self._name)
            else:
                follow(self._state, entry)
        except BaseException:
            self._forget()
            raise
        if entry.mark is not None:
            self._keep(entry)
        self._since_bytes += len(data)
        if self._since_bytes <= TAIL_BYTES:
            self._since.append(data)
        if _is_due(self._state):
            self._begin_tail(self._state.version)  # whoever writes the checkpoint

    def _begin_tail(self, version: int) -> None:
        self._base, self._since_bytes = version, 0
        self._since.clear()

    def _forget(self) -> None:
        self._state = None
        self._entries.clear()
        self._begin_tail(0)

    def _hint(self) -> int | None:
        """Read ``CURRENT``; None if it is missing or is no number."""
        try:
            text = bytes(self.store.get(LOG_CURRENT)).strip()
        except NotFoundError:
            return None
        return int(text) if text.isdigit() and len(text) <= 10 else None

    def _check_listed(self, version: int) -> None:
        """Make sure that nothing follows after a gap, by listing the folder."""
        listed = {int(name[1]) for meta in self.store.list(LOG_FOLDER) if (name := _ENTRY_NAME.fullmatch(meta.key))}
        if version and version not in listed:
            raise self._missing(version)
        if listed and max(listed) > version and version + 1 not in listed:
            raise self._missing(version + 1)

    def _point_to(self, version: int) -> None:
        self.store.put(LOG_CURRENT, f"{version}\n".encode())

    # entries

    def _publish(self, version: int, entry_id: str, data: bytes) -> bool:
        """Create an entry; True if it is there, False if another is."""
        begun_s = time.monotonic()
        for attempt in range(PUBLISH_TRIES):
            try:
                self.store.put_if_absent(log_commit_key(version), data)
                return True
            except AlreadyExistsError:
                return attempt > 0 and self._is_there(version, entry_id) is True
            except StorageError as error:
                lost, found = error, None
                with suppress(StorageError):
                    found = self._is_there(version, entry_id)
                if found is not None:
                    return found
                if error.is_certain or error.kind == "unreachable":
                    raise  # it was not done, and is not under way
                if time.monotonic() - begun_s > PUBLISH_S:
                    break  # whoever waits for the commit knows for how long
        raise CommitUnknownError("the answer to a commit was lost", version=version, reason=lost) from lost

    def _is_there(self, version: int, entry_id: str) -> bool | None:
        """Return whether an entry is this one or another; None if there is none."""
        data = self._get(version)
        try:
            return None if data is None else self._decode(version, data).id == entry_id
        except Unfinished:
            return False

    def _yield_to(self, version: int) -> None:
        """Follow the entry that took a version, or put an empty one in its place if it was never finished."""
        state = self.refresh()
        if state is not None and state.version < version:
            self._supersede(version, state.at_us)
            self.refresh()

    def _supersede(self, version: int, at_us: int) -> None:
        key, data = log_commit_key(version), self._get(version)
        try:
            if data is None or self._decode(version, data):
                return
        except Unfinished:
            pass
        age_us = self._clock() - int(self.store.head(key).modified.timestamp() * 1e6)
        if age_us < UNFINISHED_US:
            wait_s = (UNFINISHED_US - age_us) // 1_000_000 + 1
            raise StorageError(
                "another program has not finished a commit: try again", file=key, wait_s=wait_s, kind="unfinished"
            )
        with suppress(AlreadyExistsError):
            self.store.put_if_absent(f"{LOG_FOLDER}/_unfinished/{version:010d}.json", data)
        self.store.put(key, encode(void(version, at_us)))
        _logger.warning("a commit that was never finished is superseded file=%s store=%s", key, self.store.url)

    def _is_abandoned(self, version: int) -> bool:
        """Return whether nobody can have acknowledged a file that breaks off."""
        return version > 1 and (self._hint() or 0) < version and self._get(version + 1) is None

    def _get(self, version: int) -> bytes | None:
        try:
            return bytes(self.store.get(log_commit_key(version)))
        except NotFoundError:
            return None

    def _get_many(self, versions: Sequence[int]) -> list[bytes | None]:
        if len(versions) < READERS:
            return [self._get(version) for version in versions]
        with ThreadPoolExecutor(READERS) as readers:
            return list(readers.map(self._get, versions))

    def _decode(self, version: int, data: bytes) -> Entry:
        try:
            return decode(data, version)
        except TidelakeError as error:
            facts = {**error.facts, "store": self.store.url}
            raise type(error)(error.message, kind=error.kind, **facts) from error

    def _missing(self, version: int) -> CorruptError:
        return CorruptError(
            "a commit file is missing", file=log_commit_key(version), store=self.store.url, kind="missing_commit"
        )

    def _damaged(self, version: int, reason: str) -> CorruptError:
        return CorruptError(
            "a commit file is damaged",
            file=log_commit_key(version),
            reason=reason,
            store=self.store.url,
            kind="bad_commit",
        )

    # checkpoints

    def _from_checkpoint(self) -> int:
        """Begin anew at the newest checkpoint that is whole; give its version, 0 if there is none."""
        self._forget()
        found = [name for meta in self.store.list(CHECKPOINT_FOLDER) if (name := _CHECKPOINT_NAME.fullmatch(meta.key))]
        for name in sorted(found, key=lambda name: int(name[1]), reverse=True):
            try:
                self._read_checkpoint(name[0])
                assert self._state is not None
                return self._state.version
            except NotFoundError:
                self._forget()  # a newer one took its place
            except (TidelakeError, KeyError, TypeError, ValueError, AttributeError) as error:
                if isinstance(error, StorageError):
                    raise
                self._forget()
                _logger.warning("a checkpoint is passed over file=%s store=%s: %s", name[0], self.store.url, error)
        return 0

    def _read_checkpoint(self, key: str) -> None:
        tide = unseal(bytes(self.store.get(key)))["tide"]
        if "state" in tide:
            self._state = from_json(tide["state"])
            self._begin_tail(self._state.version)
            return
        if tide["base"]:
            self._read_checkpoint(log_checkpoint_key(tide["base"]))
        for version, document in enumerate(tide["entries"], start=tide["base"] + 1):
            self._follow(from_document(document, version), orjson.dumps(document))

    def _checkpoint(self, version: int) -> None:
        with self.lock:
            state = self._state
            if state is None or state.version != version:
                return
            if _is_due(state):
                data = seal({"format": PINS_VERSION if state.pins else TIDE_VERSION, "state": to_json(state)})
            elif version % TAIL_EVERY == 0 and len(self._since) == version - self._base:
                entries = [orjson.Fragment(entry) for entry in self._since]
                data = seal({"format": TIDE_VERSION, "base": self._base, "entries": entries})
            else:
                return
            key = log_checkpoint_key(version) if self._base == version else _tail_key(version)
        self.store.put(key, data)
        self._prune(version)

    def _prune(self, version: int) -> None:
        """Delete all but the newest two checkpoints, and the newest two tails."""
        names = [name for meta in self.store.list(CHECKPOINT_FOLDER) if (name := _CHECKPOINT_NAME.fullmatch(meta.key))]
        for is_tail in (False, True):
            kept = sorted((name for name in names if bool(name[2]) == is_tail), key=lambda name: int(name[1]))
            if old := [name[0] for name in kept[:-2] if int(name[1]) < version]:
                self.store.delete(old)

    def _try(self, what: str, act: Callable[[], None]) -> None:
        """Do what readers can do without."""
        try:
            act()
        except StorageError as error:
            _logger.info("could not write %s store=%s: %s", what, self.store.url, error)


def _is_due(state: LogState) -> bool:
    """Return whether a checkpoint belongs to a version: the same answer for everyone who follows the log."""
    return state.version % (CHECKPOINT_EVERY << (state.size // CHECKPOINT_SIZE).bit_length()) == 0


def _tail_key(version: int) -> str:
    return log_checkpoint_key(version).removesuffix(".json") + ".tail.json"
