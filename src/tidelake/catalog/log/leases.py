"""Keep what readers of a log table use out of the collector's hands.

::

    _timeseries_log/_leases/<SHA-256 of the owner>-<8 hex>.json    owner, lowest sequence, version, until when

A lease names a version of the log at which its snapshot was retained, and what was given up after that version is not
offered as garbage. A reader 1. reads the log on to its end, where its snapshot is retained, 2. puts the lease there, 3.
reads on again: if its snapshot is still retained, whatever gives it up comes after the lease, and whoever collects
looks for leases after that; if not, it is told so. A lease that is prolonged in time needs no third step, because it
was there all the while; and if the snapshot has expired meanwhile, it goes on with the version it named.

A file is never written again once its lease ran out: an owner that comes back takes another name, so a file that is
being tidied away cannot be one in use. It does not read the log.
"""

from __future__ import annotations

import hashlib
import logging
import secrets
from dataclasses import dataclass

from tidelake.catalog.log.entries import TIDE_VERSION, seal, unseal
from tidelake.catalog.protocol import Clock
from tidelake.errors import CorruptError, NotFoundError, StorageError
from tidelake.objects import LOG_FOLDER, ObjectStore

LEASES_FOLDER = f"{LOG_FOLDER}/_leases"
TIDIED_US = 3_600_000_000  # after a lease ran out its file is deleted: clocks differ by less

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LogLease:
    """A version of the log at which the snapshots from a sequence on were retained, and until when they are used."""

    key: str
    sequence: int
    version: int
    until_us: int


class LogLeases:
    """The leases beside one log, and which of them are this process's own."""

    def __init__(self, store: ObjectStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._own: dict[str, LogLease] = {}

    def own(self, owner: str) -> LogLease | None:
        """Return an owner's lease, if it was taken here and has not run out."""
        held = self._own.get(owner)
        return held if held is not None and held.until_us > self._clock() else None

    def put(self, owner: str, sequence: int, version: int, lease_us: int) -> None:
        """Take or prolong a lease."""
        held = self.own(owner)
        lease = LogLease(held.key if held else _new_key(owner), sequence, version, self._clock() + lease_us)
        body = {"owner": owner, "sequence": sequence, "version": version, "until_us": lease.until_us}
        self._own[owner] = lease  # before it is there: a put whose answer is lost can still be taken back
        self._store.put(lease.key, seal({"format": TIDE_VERSION, **body}))

    def release(self, owner: str) -> None:
        """Take an owner's lease back, if it was taken here."""
        if (held := self._own.pop(owner, None)) is not None:
            self._store.delete([held.key])

    def valid(self, *, tidy: bool = False) -> list[LogLease]:
        """Return the leases that have not run out, whoever has them; delete those that did long ago, if told to."""
        found, now = self._all(), self._clock()
        if tidy and (old := [each.key for each in found if each.until_us < now - TIDIED_US]):
            try:
                self._store.delete(old)
            except StorageError as error:
                _logger.info("could not delete leases that ran out store=%s: %s", self._store.url, error)
        return [each for each in found if each.until_us > now]

    def _all(self) -> list[LogLease]:
        found = []
        for meta in self._store.list(LEASES_FOLDER):
            try:
                body = unseal(bytes(self._store.get(meta.key)))["tide"]
                found.append(LogLease(meta.key, body["sequence"], body["version"], body["until_us"]))
            except NotFoundError:
                pass  # taken back just now
            except CorruptError as error:  # somebody may read anything
                _logger.warning("a lease cannot be read file=%s store=%s: %s", meta.key, self._store.url, error)
                until_us = int(meta.modified.timestamp() * 1e6) + TIDIED_US
                found.append(LogLease(meta.key, 0, 0, until_us))
        return found


def _new_key(owner: str) -> str:
    return f"{LEASES_FOLDER}/{hashlib.sha256(owner.encode()).hexdigest()}-{secrets.token_hex(4)}.json"
