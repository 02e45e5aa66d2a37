"""Hold tokens to their rates and quotas.

A rate is for a second and for this server, whose processes share its buckets: a larger request may overdraw one that is
full. A quota is for a day (UTC) and for all servers of a lake: each process counts what it acknowledged, and every few
seconds puts its count where the others see it, which also tells one that was started again::

    _access/used/<token id>/<day>/<server>.json      {"bytes": …}

So what goes beyond a quota is at most what comes within those seconds, and one request. It may be used by several
threads. It does not know what a token reaches: see ``access``.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import orjson

from tidelake.catalog.protocol import now_us
from tidelake.errors import NotFoundError, TidelakeError, redacted
from tidelake.objects import ObjectStore
from tidelake.server.access import Grant
from tidelake.server.buckets import Buckets
from tidelake.server.refusals import Busy

FOLDER = "_access/used"
DAY_US = 86_400_000_000
KEPT_DAYS = 2  # of counts: the clocks of servers may differ

log = logging.getLogger("tidelake.server")


@dataclass(slots=True)
class _Count:
    day: int
    own: int = 0
    stored: int = 0  # of its own, where others see it
    others: int = 0


class Allowance:
    """What is left to tokens that have rates or quotas."""

    def __init__(
        self, store: ObjectStore, clock_us: Callable[[], int] = now_us, *, buckets: Buckets | None = None
    ) -> None:
        self._store, self._clock_us, self._server = store, clock_us, secrets.token_hex(6)
        self._buckets = buckets or Buckets()
        self._counts: dict[str, _Count] = {}
        self._lock = threading.Lock()

    def request(self, grant: Grant) -> None:
        """Take a request off a token's rate, or refuse it."""
        if grant.rate_requests:
            self._take(grant.id, "requests", grant.rate_requests, 1)

    def rows(self, grant: Grant, size: int) -> None:
        """Take bytes of rows off a token's rate, or refuse them, also if its quota is used up."""
        if grant.quota_bytes:
            with self._lock:
                count = self._count(grant.id)
                if count.own + count.others >= grant.quota_bytes:
                    raise Busy("the token's quota is used up", quota=f"{grant.quota_bytes} bytes/day", kind="quota")
        if grant.rate_bytes:
            self._take(grant.id, "bytes", grant.rate_bytes, size)

    def came(self, grant: Grant, size: int) -> None:
        """Take bytes off a token's rate that were not known before they came: it may be overdrawn."""
        if grant.rate_bytes:
            self._take(grant.id, "bytes", grant.rate_bytes, size, refuses=False)

    def stored(self, grant: Grant, size: int) -> None:
        """Count bytes of rows that are durable."""
        if grant.quota_bytes:
            with self._lock:
                self._count(grant.id).own += size

    def exchange(self, token: str) -> None:
        """Tell other servers what a token used here, and hear what it used there. What fails is done the next time."""
        with self._lock:
            count = self._count(token)
            day, own, stored = count.day, count.own, count.stored
        try:
            if own != stored:
                self._store.put(f"{FOLDER}/{token}/{day}/{self._server}.json", orjson.dumps({"bytes": own}))
            found = list(_found(self._store, token))
            others = sum(_bytes_at(self._store, key) for key, at, who in found if at == day and who != self._server)
            self._store.delete([key for key, at, _ in found if at <= day - KEPT_DAYS])
        except TidelakeError as error:
            log.warning("the quota of a token is not exchanged token=%s: %s", token, redacted(str(error)))
            return
        with self._lock:
            if count.day == day:
                count.stored, count.others = own, others

    def exchange_all(self) -> None:
        """Tell what was not told yet, before the server ends."""
        with self._lock:
            untold = [token for token, count in self._counts.items() if count.own != count.stored]
        for token in untold:
            self.exchange(token)

    def _count(self, token: str) -> _Count:
        day = self._clock_us() // DAY_US
        count = self._counts.get(token)
        if count is None or count.day != day:
            count = self._counts[token] = _Count(day)
        return count

    def _take(self, token: str, what: str, rate: int, amount: int, *, refuses: bool = True) -> None:
        if not self._buckets.take(f"{token} {what}", rate, amount, refuses=refuses):
            raise Busy("the token's rate is used up", rate=f"{rate} {what}/s", kind="rate")


def used_bytes(store: ObjectStore, token: str, at_us: int) -> int:
    """Return how many bytes a token used on a day, as far as servers have told."""
    return sum(_bytes_at(store, key) for key, day, _ in _found(store, token) if day == at_us // DAY_US)


def forget_used(store: ObjectStore, tokens: Iterable[str]) -> None:
    """Take the counts of tokens away."""
    store.delete([key for token in tokens for key, _, _ in _found(store, token)])


def _found(store: ObjectStore, token: str) -> Iterator[tuple[str, int, str]]:
    """Yield the counts of a token: the key, the day and the server."""
    for meta in store.list(f"{FOLDER}/{token}"):
        day, _, name = meta.key.removeprefix(f"{FOLDER}/{token}/").partition("/")
        if day.isdigit():
            yield meta.key, int(day), name.removesuffix(".json")


def _bytes_at(store: ObjectStore, key: str) -> int:
    try:
        return max(0, int(orjson.loads(bytes(store.get(key)))["bytes"]))
    except (NotFoundError, ValueError, KeyError, TypeError):
        return 0  # gone, or not a count
