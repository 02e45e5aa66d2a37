"""Keep objects in an S3 bucket, or in memory, through obstore.

An unreachable server is told within ten seconds, a silent one within a third of the deadline, twenty seconds by
default, with whatever was tried before. It does not know folders.
"""

from __future__ import annotations

import re
import time
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from tidelake.errors import InvalidInputError, StorageError, TidelakeError
from tidelake.objects.keys import UNFIT, check_key, unfit_reason
from tidelake.objects.library import ORIGINAL, Library, library
from tidelake.objects.protocol import (
    ACCEPTED,
    DEADLINE_S,
    PAST_THE_END,
    Buffers,
    Data,
    ObjectMeta,
    Range,
    Tail,
    check_prefix,
    check_ranges,
    check_tail,
    missing,
    short,
    taken,
    view_of,
)
from tidelake.runtime.deferred import deferred

if TYPE_CHECKING:
    import pyarrow as pa
    from obstore.store import ClientConfig, MemoryStore, RetryConfig, S3Config, S3Credential, S3Store
else:
    pa = deferred("pyarrow")

# An unreachable endpoint fails within ten seconds: a last try starts before RETRY_FOR and may wait CONNECT_WITHIN.
CONNECT_WITHIN = timedelta(seconds=3)
RETRY_FOR = timedelta(seconds=5)
MAX_RETRIES = 8  # a server that answers "slow down" at once is asked again for as long as RETRY_FOR allows
FIRST_BACKOFF, LONGEST_BACKOFF = timedelta(milliseconds=100), timedelta(seconds=1)
SILENCE = 1 / 3  # of the deadline: silence for so long means that the server is gone
FINISH_WITHIN = timedelta(minutes=5)  # the largest extent over a slow line
PART_BYTES = 16 * 1024 * 1024  # a larger object goes up in parts, so that no request is silent for long
COALESCE_BYTES = 1024 * 1024  # reading a gap this small costs less than another request
CONFLICT_TRIES = 6  # "409, ask again" is an answer, and says that nothing was written

_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,61}[A-Za-z0-9]")
_S3_CODE = re.compile(r"<Error>\s*<Code>(\w+)</Code>")
_STATUS = re.compile(r"non-2xx status code: (\d{3})")


@dataclass(frozen=True, slots=True)
class Clients:
    """A place as one library of obstore reaches it."""

    library: Library
    store: Any
    once: Any  # the same place, asked without retries

    @property
    def obstore(self) -> Any:
        return self.library.functions


class Remote:
    """A store behind obstore; subclasses say which."""

    def __init__(self, url: str, clients: Clients) -> None:
        self.url = url
        self._clients = clients

    def __repr__(self) -> str:
        return f"ObjectStore({self.url})"

    def get(self, key: str) -> pa.Buffer:
        with self._asking(check_key(key)) as client:
            return pa.py_buffer(client.obstore.get(client.store, key).bytes())

    def get_range(self, key: str, start: int, length: int) -> pa.Buffer:
        return self.get_ranges(key, [(start, length)])[0]

    def get_ranges(self, key: str, ranges: Sequence[Range]) -> Buffers:
        check_ranges(key, ranges, self.url)
        starts, ends = _merged(ranges)
        with self._asking(key) as client:
            found = client.obstore.get_ranges(client.store, key, starts=starts, ends=ends, coalesce=0)
        buffers = [pa.py_buffer(data) for data in found]
        if [start + buffer.size for start, buffer in zip(starts, buffers, strict=True)] != ends:
            raise short(key, self.url)
        answer = []
        for start, length in ranges:
            home = bisect_right(starts, start) - 1
            answer.append(buffers[home].slice(start - starts[home], length) if length else pa.py_buffer(b""))
        return answer

    def get_tail(self, key: str, length: int) -> Tail:
        check_tail(key, length)
        try:
            with self._asking(key) as client:
                found = client.obstore.get(client.store, key, options={"range": {"suffix": length}})
                tail = Tail(pa.py_buffer(found.bytes()), found.meta["size"])
        except StorageError as error:
            # An empty object has no last byte, so a server calls any range of it unsatisfiable.
            if error.kind == "short_read" and self.head(key).size == 0:
                return Tail(pa.py_buffer(b""), 0)
            raise
        if tail.data.size != min(length, tail.size):
            raise short(key, self.url)
        return tail

    def head(self, key: str) -> ObjectMeta:
        with self._asking(check_key(key)) as client:
            try:
                found = client.obstore.head(client.store, key)
            except FileNotFoundError:
                # The answer to HEAD has no body: only GET can say whether the key or its bucket is missing.
                found = client.obstore.get(client.store, key).meta
        return ObjectMeta(key, found["size"], found["last_modified"])

    def put(self, key: str, data: Data) -> None:
        with self._asking(check_key(key)) as client:
            client.obstore.put(client.store, key, self._payload(data), chunk_size=PART_BYTES)

    def put_if_absent(self, key: str, data: Data) -> None:
        check_key(key)
        for attempt in range(1, CONFLICT_TRIES + 1):
            try:
                # Sent once: a second request would find the write of a first whose answer was lost, and call it taken.
                with self._asking(key) as client:
                    client.obstore.put(client.once, key, self._payload(data), mode="create")
                return
            except StorageError as error:
                if error.kind != "conflict" or attempt == CONFLICT_TRIES:
                    raise
            time.sleep(FIRST_BACKOFF.total_seconds() * attempt)

    def list(self, prefix: str = "") -> Iterator[ObjectMeta]:
        check_prefix(prefix)
        return self._listed(prefix)

    def list_unsorted(self, prefix: str = "") -> Iterator[ObjectMeta]:
        """Yield what ``list`` does as the server tells it, a page at a time."""
        check_prefix(prefix)
        with self._asking(prefix) as client:
            pages = iter(client.obstore.list(client.store, prefix or None, chunk_size=1000))
        while True:
            with self._asking(prefix):
                page = next(pages, None)
            if page is None:
                return
            metas = [ObjectMeta(found["path"], found["size"], found["last_modified"]) for found in page]
            yield from (meta for meta in metas if not unfit_reason(meta.key))

    def delete(self, keys: Iterable[str]) -> None:
        if checked := [check_key(key) for key in keys]:
            with self._asking(checked[0]) as client:
                client.obstore.delete(client.store, checked)

    def _payload(self, data: Data) -> bytes | memoryview:
        return view_of(data)

    def _current(self) -> Clients:
        """Return the clients that this process may use."""
        return self._clients

    @contextmanager
    def _asking(self, key: str = "") -> Iterator[Clients]:
        """Lend the clients, and turn what obstore raises into our errors."""
        client = self._current()
        try:
            yield client
        except (OSError, client.library.exceptions.BaseError) as error:
            is_taken = isinstance(error, client.library.exceptions.AlreadyExistsError)
            raise _error_of(error, self.url, key, is_taken=is_taken) from error

    def _listed(self, prefix: str) -> Iterator[ObjectMeta]:
        yield from sorted(self.list_unsorted(prefix), key=attrgetter("key"))


class Memory(Remote):
    """A store in this process's memory."""

    keeps_conditions = True

    def _payload(self, data: Data) -> bytes:
        return bytes(view_of(data))  # obstore keeps what it is given, and the caller may change a bytearray later


@dataclass(frozen=True, slots=True)
class S3Place:
    """Where a bucket is, and how to be let in."""

    bucket: str
    prefix: str
    endpoint: str | None
    region: str | None
    key: str | None = field(repr=False)
    secret: str | None = field(repr=False)
    deadline_s: float = DEADLINE_S


class Bucket(Remote):
    """A store in an S3 bucket; it pickles as its place, credentials and all, to be used on another machine."""

    def __init__(self, place: S3Place) -> None:
        self.s3 = place
        url = f"s3://{place.bucket}" + f"/{place.prefix}" * bool(place.prefix)
        super().__init__(url, _connect_s3(place))

    def _current(self) -> Clients:
        if self._clients.library is not library():
            _inherited.append(self._clients)  # a parent's: not even closed here
            self._clients = _connect_s3(self.s3)
        return self._clients

    def __reduce__(self) -> tuple[Any, ...]:
        return Bucket, (self.s3,)

    @property
    def place(self) -> tuple[str | None, ...]:
        """Where the bucket is: what is known of its server holds for all that is stored there."""
        return self.s3.endpoint, self.s3.region, self.s3.bucket


_inherited: list[Clients] = []
_memories: dict[str, MemoryStore] = {}


def open_memory(name: str) -> Memory:
    """Open a store in this process's memory: a new one, or the one of that name."""
    if name and not re.fullmatch(r"[A-Za-z0-9_-]+", name):
        raise InvalidInputError("a memory store's name is letters, digits, _ and -", store=f"memory://{name}")
    # setdefault is one step under the interpreter's lock, so two threads get one store
    held = ORIGINAL.stores.MemoryStore()
    held = _memories.setdefault(name, held) if name else held
    return Memory(f"memory://{name}", Clients(ORIGINAL, held, held))


def parse_s3(
    url: str,
    *,
    endpoint: str | None = None,
    key: str | None = None,
    secret: str | None = None,
    region: str | None = None,
    deadline_s: float = DEADLINE_S,
) -> S3Place:
    """Read the place of a bucket; nothing is asked of it."""
    bucket, _, prefix = url.partition("://")[2].partition("/")
    prefix = prefix.rstrip("/")
    if not _BUCKET.fullmatch(bucket):
        raise InvalidInputError("no bucket can have this name", store=ascii(url), accepted=ACCEPTED)
    check_prefix(prefix)
    if bool(key) != bool(secret):
        raise InvalidInputError("key and secret go together", store=url)
    if endpoint is not None and (not re.match("https?://[^/]", endpoint) or UNFIT.search(endpoint)):
        raise InvalidInputError("an endpoint begins with http:// or https://", endpoint=ascii(endpoint))
    if endpoint is not None and "@" in endpoint:  # the client repeats its endpoint in errors
        raise InvalidInputError("an endpoint names no user: give key= and secret=", endpoint=endpoint)
    return S3Place(bucket, prefix, endpoint and endpoint.rstrip("/"), region, key, secret, deadline_s)


def _connect_s3(place: S3Place) -> Clients:
    with_retries, once = (_client_of(place, retries=retries) for retries in (MAX_RETRIES, 0))
    return Clients(library(), with_retries, once)


def _client_of(place: S3Place, *, retries: int) -> S3Store:
    # Path style is understood by AWS and by every server that speaks S3.
    config: S3Config = {"virtual_hosted_style_request": False}
    if place.endpoint:
        config["aws_endpoint_url_s3"] = place.endpoint  # AWS_ENDPOINT_URL_S3 would win over "endpoint"
    if place.region:
        config["region"] = place.region
    silence = timedelta(seconds=place.deadline_s * SILENCE)
    client: ClientConfig = {
        "allow_http": (place.endpoint or "").startswith("http://"),
        "connect_timeout": min(CONNECT_WITHIN, silence),
        "read_timeout": silence,
        "timeout": FINISH_WITHIN,
    }
    retry: RetryConfig = {
        "max_retries": retries,
        "retry_timeout": min(RETRY_FOR, silence),
        "backoff": {"init_backoff": FIRST_BACKOFF, "max_backoff": LONGEST_BACKOFF, "base": 2},
    }
    found: S3Store = library().stores.S3Store(
        place.bucket,
        prefix=place.prefix or None,
        config=config,
        client_options=client,
        retry_config=retry,
        credential_provider=_credentials(place.key, place.secret) if place.key and place.secret else None,
    )
    return found


def _credentials(key: str, secret: str) -> Any:
    # A provider and not settings, because a session token of the environment would be sent along with those.
    credential: S3Credential = {"access_key_id": key, "secret_access_key": secret, "token": None, "expires_at": None}
    return lambda: credential


_NO_CONNECTION = "cannot reach the store: check the endpoint and the network"
_REFUSED = "the credentials were refused: check "
# What S3 answers, by its own code or else by the status, with the kind it gets and what to tell the user.
_ANSWER_RULES: dict[str, tuple[str, str]] = {
    "NoSuchBucket": ("missing_bucket", "no such bucket: check its name and the endpoint"),
    "SignatureDoesNotMatch": ("unauthenticated", _REFUSED + "the secret"),
    "InvalidAccessKeyId": ("unauthenticated", _REFUSED + "the key"),
    "KeyTooLongError": ("bad_key", "the key is too long for the bucket: give the store a shorter prefix"),
    "401": ("unauthenticated", _REFUSED + "key and secret"),
    "403": ("permission_denied", "permission denied: check key, secret and the bucket's policy"),
    "409": ("conflict", "another conditional write of this key is under way"),
    "416": ("short_read", PAST_THE_END),
}
# The same without an answer, by a part of the text that no URL has, for the text holds the request's.
_SILENCE_RULES: dict[str, tuple[str, str]] = {
    "StartTooLarge {": ("short_read", PAST_THE_END),
    "tcp connect error": ("unreachable", _NO_CONNECTION),
    "kind: Connect": ("unreachable", _NO_CONNECTION),
    "kind: Timeout": ("timeout", "the store did not answer in time"),
}


def _error_of(error: Exception, url: str, key: str, *, is_taken: bool) -> TidelakeError:
    facts: dict[str, Any] = {"key": key, "store": url} if key else {"store": url}
    text = str(error)
    answer = [found[1] for found in (_S3_CODE.search(text), _STATUS.search(text)) if found]
    if isinstance(error, FileNotFoundError) and "NoSuchBucket" not in answer:
        return missing(key, url)
    if is_taken and "409" not in answer:
        return taken(key, url)
    rules = [_ANSWER_RULES[name] for name in answer if name in _ANSWER_RULES]
    if not answer:
        rules = [rule for part, rule in _SILENCE_RULES.items() if part in text]
    if rules:
        kind, message = rules[0]
        return StorageError(message, kind=kind, **facts)
    reason = " ".join(text.partition("Debug source:")[0].split())
    return StorageError("the store did not do it", **facts, reason=reason[:300])


def _merged(ranges: Sequence[Range]) -> tuple[list[int], list[int]]:
    """Return starts and ends of requests that hold all ranges; obstore's own merging panics past an object's end."""
    starts: list[int] = []
    ends: list[int] = []
    for start, length in sorted(wanted for wanted in ranges if wanted[1]):
        if ends and start - ends[-1] <= COALESCE_BYTES:
            ends[-1] = max(ends[-1], start + length)
        else:
            starts.append(start)
            ends.append(start + length)
    return starts, ends
