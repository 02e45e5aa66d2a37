"""Keep named bytes in a folder, in memory or in a bucket, behind one small set of verbs.

A key is a relative path of plain segments, and every store takes the same keys. A write is whole or absent, and durable
once it returns; ``put_if_absent`` has one winner. A StorageError from a write means that its outcome is not known: look
before acting. AlreadyExistsError is always about another's write: a conditional put that may have been done is not sent
again.

Every name in a lake is made here::

    catalog.sqlite                                                  the catalog of a lake folder; not an object
    data/{namespace}/{table}/extents/{id}{suffix}                   extents of a shared table
    data/{namespace}/{table}/users/{user}/extents/{id}{suffix}      extents of one user
    data/{namespace}/{table}/coverage/extents/{id}.cov              what one extent covers
    data/{namespace}/{table}/coverage/table/{sequence}-{id}.cov     what a table covered at a sequence

and, under the root of a table whose catalog is a transaction log::

    _timeseries_log/CURRENT                                         a hint: the newest version
    _timeseries_log/0000000001.json                                 one commit
    _timeseries_log/_checkpoints/0000000001.json                    the state after a commit
    _coverage/segments/{id}.roar                                    coverage of one segment
    _coverage/table/{version}-{id}.roar                             coverage of the table
    data/{name}                                                     segments

It does not cache, verify checksums or know what the bytes mean.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
import time
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias
from urllib.parse import quote, unquote, urlsplit

import obstore
from obstore.exceptions import AlreadyExistsError as ObstoreAlreadyExistsError
from obstore.exceptions import BaseError as ObstoreError
from obstore.store import MemoryStore, S3Store

from tidelake.errors import AlreadyExistsError, InvalidInputError, NotFoundError, StorageError, TidelakeError
from tidelake.later import later

if TYPE_CHECKING:
    import pyarrow as pa
    from obstore.store import ClientConfig, RetryConfig, S3Config, S3Credential
else:
    pa = later("pyarrow")

Data: TypeAlias = "bytes | bytearray | memoryview | pa.Buffer"
Buffers: TypeAlias = "list[pa.Buffer]"
Range: TypeAlias = tuple[int, int]  # start, length

CATALOG_FILE = "catalog.sqlite"
LOG_CURRENT = "_timeseries_log/CURRENT"
TEMPORARY_PREFIX = ".tide-tmp-"

MAX_KEY_BYTES = 1024  # S3's own limit, in which it counts a bucket's prefix too
MAX_SEGMENT_BYTES = 255  # a file name can be no longer
MAX_VERSION = 9_999_999_999  # ten digits, so that names sort as numbers do
MAX_OFFSET = 2**63 - 1

# An unreachable endpoint fails within ten seconds: a last try starts before RETRY_FOR and may wait CONNECT_WITHIN.
CONNECT_WITHIN = timedelta(seconds=3)
RETRY_FOR = timedelta(seconds=5)
MAX_RETRIES = 8  # a server that answers "slow down" at once is asked again for as long as RETRY_FOR allows
FIRST_BACKOFF, LONGEST_BACKOFF = timedelta(milliseconds=100), timedelta(seconds=1)
ANSWER_WITHIN = timedelta(seconds=30)  # silence for so long means that the server is gone
FINISH_WITHIN = timedelta(minutes=5)  # the largest extent over a slow line
PART_BYTES = 16 * 1024 * 1024  # a larger object goes up in parts, so that no request outlives ANSWER_WITHIN
COALESCE_BYTES = 1024 * 1024  # reading a gap this small costs less than another request
CONFLICT_TRIES = 6  # "409, ask again" is an answer, and says that nothing was written

_UNFIT = re.compile(r"[\x00-\x1f\x7f-\x9f\\\ud800-\udfff]")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,61}[A-Za-z0-9]")
_S3_CODE = re.compile(r"<Error>\s*<Code>(\w+)</Code>")
_STATUS = re.compile(r"non-2xx status code: (\d{3})")
_ACCEPTED = "a folder, file:///folder, memory://, memory://name, s3://bucket, s3://bucket/prefix"


@dataclass(frozen=True, slots=True)
class ObjectMeta:
    """What a store knows of an object without reading it."""

    key: str
    size: int
    modified: datetime


@dataclass(frozen=True, slots=True)
class Tail:
    """The last bytes of an object, and how large the whole object is."""

    data: pa.Buffer
    size: int


Metas: TypeAlias = list[ObjectMeta]


class ObjectStore(Protocol):
    """The verbs every store has; a missing key is a NotFoundError, a bad one an InvalidInputError."""

    url: str  # where the store is, as ``open_store`` takes it; without credentials

    def get(self, key: str) -> pa.Buffer:
        """Read a whole object."""

    def get_range(self, key: str, start: int, length: int) -> pa.Buffer:
        """Read exactly these bytes; past the end is a StorageError of kind ``short_read``."""

    def get_ranges(self, key: str, ranges: Sequence[Range]) -> Buffers:
        """Read several ``(start, length)`` at once, near ones together; an empty range asks nothing of the store."""

    def get_tail(self, key: str, length: int) -> Tail:
        """Read the last bytes in one request; all of them if the object is shorter."""

    def head(self, key: str) -> ObjectMeta:
        """Tell size and time of an object."""

    def put(self, key: str, data: Data) -> None:
        """Write an object, in place of any other."""

    def put_if_absent(self, key: str, data: Data) -> None:
        """Write an object only if there is none; else AlreadyExistsError."""

    def list(self, prefix: str = "") -> Iterator[ObjectMeta]:
        """Yield all objects below a folder, at any depth, in the order of their keys.

        ``a`` is the folder of ``a/x`` and not of ``ab/x``. A folder store reads one folder at a time; a bucket's keys
        are collected first, because servers differ in their order.
        """

    def delete(self, keys: Iterable[str]) -> None:
        """Remove objects; one that is not there is fine."""


def open_store(
    where: str | os.PathLike[str],
    *,
    endpoint: str | None = None,
    key: str | None = None,
    secret: str | None = None,
    region: str | None = None,
    create: bool = True,
) -> ObjectStore:
    """Open the store at a folder, ``file://``, ``memory://`` or ``s3://`` place; nothing is asked of a bucket yet.

    ``create`` makes a missing folder; a bucket is never made. Each ``memory://`` is new and empty, while a named one is
    shared within the process. Without key and secret, the environment's AWS credentials are used. Plain http is spoken
    only to an endpoint given as ``http://``.
    """
    text = os.fspath(where)
    scheme = found[1].lower() if (found := _SCHEME.match(text)) else None
    if scheme == "s3":
        return _Bucket(_parse_s3(text, endpoint=endpoint, key=key, secret=secret, region=region))
    if any((endpoint, key, secret, region)):
        raise InvalidInputError("endpoint, key, secret and region are for s3:// only", store=text)
    match scheme:
        case None:
            return _open_folder(text, create=create)
        case "file":
            return _open_folder(_parse_file_url(text), create=create)
        case "memory":
            return _open_memory(text.partition("://")[2])
        case _:
            raise InvalidInputError(f"cannot open {scheme}://", store=text, accepted=_ACCEPTED)


def probe_conditional_put(store: ObjectStore, prefix: str = "") -> None:
    """Refuse a store that ignores the condition of a conditional put, as some S3 servers silently do."""
    key = f"{prefix}/" * bool(prefix) + f".tide-probe-{secrets.token_hex(8)}"
    try:
        store.put_if_absent(key, b"first")
        with suppress(AlreadyExistsError):
            store.put_if_absent(key, b"second")
            raise StorageError(
                "the store ignores conditional put, so two writers could both win: use another server",
                kind="no_conditional_put",
                store=store.url,
            )
    finally:
        with suppress(StorageError):
            store.delete([key])


def check_key(key: str) -> str:
    """Return the key if every store can hold it and it cannot leave the store; else InvalidInputError."""
    if reason := _unfit_reason(key):
        raise InvalidInputError("not a key", reason=reason, key=ascii(key[:80]), kind="bad_key")
    return key


def table_prefix(namespace: str, table: str) -> str:
    """Name the folder of all that a table has written."""
    return check_key(f"data/{_encoded(namespace)}/{_encoded(table)}")


def extent_key(namespace: str, table: str, extent_id: str, suffix: str, *, user: str | None = None) -> str:
    """Name an extent of a table, or of one user of it; a hostile name stays one segment."""
    scope = "" if user is None else f"/users/{_encoded(user)}"
    return check_key(f"{table_prefix(namespace, table)}{scope}/extents/{_encoded(extent_id)}{suffix}")


def log_commit_key(version: int) -> str:
    """Name the commit of a version; creating it is the commit."""
    return f"_timeseries_log/{_digits(version)}.json"


def log_checkpoint_key(version: int) -> str:
    """Name the checkpoint of a version."""
    return f"_timeseries_log/_checkpoints/{_digits(version)}.json"


def extent_coverage_key(namespace: str, table: str, extent_id: str) -> str:
    """Name what an extent covers."""
    return check_key(f"{table_prefix(namespace, table)}/coverage/extents/{_encoded(extent_id)}.cov")


def united_coverage_key(namespace: str, table: str, sequence: int, coverage_id: str) -> str:
    """Name what a table covered at a sequence."""
    return check_key(f"{table_prefix(namespace, table)}/coverage/table/{sequence}-{_encoded(coverage_id)}.cov")


def segment_coverage_key(coverage_id: str) -> str:
    """Name the coverage sidecar of one segment."""
    return check_key(f"_coverage/segments/{_encoded(coverage_id)}.roar")


def table_coverage_key(version: int, coverage_id: str) -> str:
    """Name the coverage of a whole table as of a version."""
    return check_key(f"_coverage/table/{version}-{_encoded(coverage_id)}.roar")


def log_data_key(name: str) -> str:
    """Name a segment of a table whose catalog is a transaction log."""
    return check_key(f"data/{name}")


class _Folder:
    """A store in a folder.

    Reads are plain system calls, 7 µs for a small range where obstore's take 64 µs. Writes are our own because
    obstore does not sync.
    """

    def __init__(self, root: Path) -> None:
        self.url = root.as_uri()
        self._root = str(root)
        self._settled = {self._root}  # folders whose own entries are known to be on disk

    def __repr__(self) -> str:
        return f"ObjectStore({self.url})"

    def get(self, key: str) -> pa.Buffer:
        with self._opened(key) as (file, status):
            return self._read(key, file, (0, status.st_size), status.st_size)

    def get_range(self, key: str, start: int, length: int) -> pa.Buffer:
        return self.get_ranges(key, [(start, length)])[0]

    def get_ranges(self, key: str, ranges: Sequence[Range]) -> Buffers:
        _check_ranges(key, ranges, self.url)
        if not any(length for _, length in ranges):
            return [pa.py_buffer(b"") for _ in ranges]
        with self._opened(key) as (file, status):
            return [self._read(key, file, wanted, status.st_size) for wanted in ranges]

    def get_tail(self, key: str, length: int) -> Tail:
        _check_tail(key, length)
        with self._opened(key) as (file, status):
            held = min(length, status.st_size)
            return Tail(self._read(key, file, (status.st_size - held, held), status.st_size), status.st_size)

    def head(self, key: str) -> ObjectMeta:
        with self._opened(key) as (_, status):
            return _meta_of(key, status)

    def put(self, key: str, data: Data) -> None:
        with self._written(key, data) as (temporary, path):
            os.replace(temporary, path)

    def put_if_absent(self, key: str, data: Data) -> None:
        with self._written(key, data) as (temporary, path):
            try:
                os.link(temporary, path)
            except FileExistsError as error:
                raise _taken(key, self.url) from error

    def list(self, prefix: str = "") -> Iterator[ObjectMeta]:
        _check_prefix(prefix)
        return self._listed(prefix)

    def delete(self, keys: Iterable[str]) -> None:
        for key in [check_key(key) for key in keys]:
            with _told(self.url, key), suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError):
                os.unlink(f"{self._root}/{key}")

    @contextmanager
    def _opened(self, key: str) -> Iterator[tuple[int, os.stat_result]]:
        path = f"{self._root}/{check_key(key)}"
        with _told(self.url, key):
            try:
                file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except (FileNotFoundError, NotADirectoryError) as error:
                self._check_root()
                raise _missing(key, self.url) from error
            try:
                status = os.fstat(file)
                if not stat.S_ISREG(status.st_mode):
                    raise _missing(key, self.url)
                yield file, status
            finally:
                os.close(file)

    def _read(self, key: str, file: int, wanted: Range, size: int) -> pa.Buffer:
        start, length = wanted
        if length and start + length > size:  # asked first, so that a hostile length allocates nothing
            raise _short(key, self.url)
        parts = []
        while length:  # one call reads at most 2 GiB
            parts.append(part := os.pread(file, length, start))
            if not part:
                raise _short(key, self.url)
            start, length = start + len(part), length - len(part)
        return pa.py_buffer(parts[0] if len(parts) == 1 else b"".join(parts))

    @contextmanager
    def _written(self, key: str, data: Data) -> Iterator[tuple[str, str]]:
        """Give a synced temporary file to publish under the key's path; whatever happens, its temporary name goes.

        1. Make the folder, and sync its entry in the one above it.
        2. Write and sync the bytes under a name that no key has.
        3. Let the caller give them their own name.
        4. Sync that name.
        """
        path = f"{self._root}/{check_key(key)}"
        folder = os.path.dirname(path)
        temporary = f"{folder}/{TEMPORARY_PREFIX}{secrets.token_hex(8)}"
        with _told(self.url, key):
            self._settle(folder)  # 1
            try:
                with open(temporary, "xb") as file:  # 2
                    file.write(_view(data))
                    file.flush()
                    os.fsync(file.fileno())
                yield temporary, path  # 3
            finally:
                with suppress(FileNotFoundError, NotADirectoryError):
                    os.unlink(temporary)
            _sync_folder(folder)  # 4

    def _settle(self, folder: str) -> None:
        """Make a folder below the root, and have its entry on disk even if another process made it just now."""
        if folder in self._settled and os.path.isdir(folder):
            return
        self._check_root()
        parent = os.path.dirname(folder)
        self._settle(parent)
        with suppress(FileExistsError):
            os.mkdir(folder)
        _sync_folder(parent)
        self._settled.add(folder)

    def _check_root(self) -> None:
        """Tell an empty store from one whose disk is not mounted, and never make the root anew."""
        if not os.path.isdir(self._root):
            raise StorageError("the store's folder is gone: is its disk mounted?", store=self.url, kind="missing_root")

    def _listed(self, prefix: str) -> Iterator[ObjectMeta]:
        with _told(self.url, prefix):
            self._check_root()
            yield from self._walked(f"{self._root}/{prefix}", f"{prefix}/" if prefix else "")

    def _walked(self, folder: str, prefix: str) -> Iterator[ObjectMeta]:
        found: dict[str, os.DirEntry[str]] = {}
        with suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as entries:
            found = {f"{entry.name}/" if entry.is_dir() else entry.name: entry for entry in entries}
        for name in sorted(found):  # a folder sorts with its slash, which is the order of whole keys
            if name.endswith("/"):
                yield from self._walked(found[name].path, prefix + name)
            elif meta := _meta_of_entry(prefix + name, found[name]):
                yield meta


class _Obstore:
    """A store behind obstore; subclasses say which."""

    def __init__(self, url: str, store: Any, *, once: Any = None) -> None:
        self.url = url
        self._store = store
        self._once = once or store  # the same place, asked without retries

    def __repr__(self) -> str:
        return f"ObjectStore({self.url})"

    def get(self, key: str) -> pa.Buffer:
        with _told(self.url, check_key(key)):
            return pa.py_buffer(obstore.get(self._store, key).bytes())

    def get_range(self, key: str, start: int, length: int) -> pa.Buffer:
        return self.get_ranges(key, [(start, length)])[0]

    def get_ranges(self, key: str, ranges: Sequence[Range]) -> Buffers:
        _check_ranges(key, ranges, self.url)
        starts, ends = _merged(ranges)
        with _told(self.url, key):
            found = obstore.get_ranges(self._store, key, starts=starts, ends=ends, coalesce=0)
        buffers = [pa.py_buffer(data) for data in found]
        if [start + buffer.size for start, buffer in zip(starts, buffers, strict=True)] != ends:
            raise _short(key, self.url)
        answer = []
        for start, length in ranges:
            home = bisect_right(starts, start) - 1
            answer.append(buffers[home].slice(start - starts[home], length) if length else pa.py_buffer(b""))
        return answer

    def get_tail(self, key: str, length: int) -> Tail:
        _check_tail(key, length)
        try:
            with _told(self.url, key):
                found = obstore.get(self._store, key, options={"range": {"suffix": length}})
                tail = Tail(pa.py_buffer(found.bytes()), found.meta["size"])
        except StorageError as error:
            # An empty object has no last byte, so a server calls any range of it unsatisfiable.
            if error.kind == "short_read" and self.head(key).size == 0:
                return Tail(pa.py_buffer(b""), 0)
            raise
        if tail.data.size != min(length, tail.size):
            raise _short(key, self.url)
        return tail

    def head(self, key: str) -> ObjectMeta:
        with _told(self.url, check_key(key)):
            try:
                found = obstore.head(self._store, key)
            except FileNotFoundError:
                # The answer to HEAD has no body: only GET can say whether the key or its bucket is missing.
                found = obstore.get(self._store, key).meta
        return ObjectMeta(key, found["size"], found["last_modified"])

    def put(self, key: str, data: Data) -> None:
        with _told(self.url, check_key(key)):
            obstore.put(self._store, key, self._payload(data), chunk_size=PART_BYTES)

    def put_if_absent(self, key: str, data: Data) -> None:
        check_key(key)
        for attempt in range(1, CONFLICT_TRIES + 1):
            try:
                # Sent once: a second request would find the write of a first whose answer was lost, and call it taken.
                with _told(self.url, key):
                    obstore.put(self._once, key, self._payload(data), mode="create")
                return
            except StorageError as error:
                if error.kind != "conflict" or attempt == CONFLICT_TRIES:
                    raise
            time.sleep(FIRST_BACKOFF.total_seconds() * attempt)

    def list(self, prefix: str = "") -> Iterator[ObjectMeta]:
        _check_prefix(prefix)
        return self._listed(prefix)

    def delete(self, keys: Iterable[str]) -> None:
        if checked := [check_key(key) for key in keys]:
            with _told(self.url, checked[0]):
                obstore.delete(self._store, checked)

    def _payload(self, data: Data) -> bytes | memoryview:
        return _view(data)

    def _listed(self, prefix: str) -> Iterator[ObjectMeta]:
        metas: Metas = []
        with _told(self.url, prefix):
            for page in obstore.list(self._store, prefix or None, chunk_size=1000):
                metas += [ObjectMeta(found["path"], found["size"], found["last_modified"]) for found in page]
        yield from sorted((meta for meta in metas if not _unfit_reason(meta.key)), key=attrgetter("key"))


class _Memory(_Obstore):
    """A store in this process's memory."""

    def _payload(self, data: Data) -> bytes:
        return bytes(_view(data))  # obstore keeps what it is given, and the caller may change a bytearray later


@dataclass(frozen=True, slots=True)
class _S3Place:
    bucket: str
    prefix: str
    endpoint: str | None
    region: str | None
    key: str | None
    secret: str | None


class _Bucket(_Obstore):
    """A store in an S3 bucket; it pickles as its place, credentials and all, to be used on another machine."""

    def __init__(self, place: _S3Place) -> None:
        self._place = place
        url = f"s3://{place.bucket}" + f"/{place.prefix}" * bool(place.prefix)
        super().__init__(url, _connect_s3(place, retries=MAX_RETRIES), once=_connect_s3(place, retries=0))

    def __reduce__(self) -> tuple[Any, ...]:
        return _Bucket, (self._place,)


_memories: dict[str, MemoryStore] = {}


def _open_memory(name: str) -> ObjectStore:
    if name and not re.fullmatch(r"[A-Za-z0-9_-]+", name):
        raise InvalidInputError("a memory store's name is letters, digits, _ and -", store=f"memory://{name}")
    # setdefault is one step under the interpreter's lock, so two threads get one store
    return _Memory(f"memory://{name}", _memories.setdefault(name, MemoryStore()) if name else MemoryStore())


def _open_folder(path: str, *, create: bool) -> ObjectStore:
    if not path or "\0" in path:
        raise InvalidInputError("not a folder's name", store=ascii(path), accepted=_ACCEPTED)
    root = Path(os.path.abspath(path))
    with _told(root.as_uri()):
        if not create and not os.path.lexists(root):
            raise NotFoundError("no such folder", store=root, kind="missing_root")
        try:
            for folder in reversed([each for each in (root, *root.parents) if not each.exists()]):
                folder.mkdir(exist_ok=True)
                _sync_folder(str(folder.parent))
        except (FileExistsError, NotADirectoryError) as error:
            raise InvalidInputError("not a folder", store=root, kind="not_a_folder") from error
        if not root.is_dir():
            raise InvalidInputError("a file, not a folder", store=root, kind="not_a_folder")
    return _Folder(root)


def _parse_file_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost") or not parts.path or parts.query or parts.fragment:
        raise InvalidInputError("a file URL is file:///absolute/folder", store=url, accepted=_ACCEPTED)
    return unquote(parts.path)


def _parse_s3(url: str, *, endpoint: str | None, key: str | None, secret: str | None, region: str | None) -> _S3Place:
    bucket, _, prefix = url.partition("://")[2].partition("/")
    prefix = prefix.rstrip("/")
    if not _BUCKET.fullmatch(bucket):
        raise InvalidInputError("no bucket can have this name", bucket=ascii(bucket), accepted=_ACCEPTED)
    _check_prefix(prefix)
    if bool(key) != bool(secret):
        raise InvalidInputError("key and secret go together", store=url)
    if endpoint is not None and (not re.match("https?://[^/]", endpoint) or _UNFIT.search(endpoint)):
        raise InvalidInputError("an endpoint begins with http:// or https://", endpoint=ascii(endpoint))
    return _S3Place(bucket, prefix, endpoint and endpoint.rstrip("/"), region, key, secret)


def _connect_s3(place: _S3Place, *, retries: int) -> S3Store:
    # Path style is understood by AWS and by every server that speaks S3.
    config: S3Config = {"virtual_hosted_style_request": False}
    if place.endpoint:
        config["aws_endpoint_url_s3"] = place.endpoint  # AWS_ENDPOINT_URL_S3 would win over "endpoint"
    if place.region:
        config["region"] = place.region
    client: ClientConfig = {
        "allow_http": (place.endpoint or "").startswith("http://"),
        "connect_timeout": CONNECT_WITHIN,
        "read_timeout": ANSWER_WITHIN,
        "timeout": FINISH_WITHIN,
    }
    retry: RetryConfig = {
        "max_retries": retries,
        "retry_timeout": RETRY_FOR,
        "backoff": {"init_backoff": FIRST_BACKOFF, "max_backoff": LONGEST_BACKOFF, "base": 2},
    }
    return S3Store(
        place.bucket,
        prefix=place.prefix or None,
        config=config,
        client_options=client,
        retry_config=retry,
        credential_provider=_credentials(place.key, place.secret) if place.key and place.secret else None,
    )


def _credentials(key: str, secret: str) -> Any:
    # A provider and not settings, because a session token of the environment would be sent along with those.
    credential: S3Credential = {"access_key_id": key, "secret_access_key": secret, "token": None, "expires_at": None}
    return lambda: credential


_PAST_THE_END = "asked for bytes past the end of the object"
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
    "416": ("short_read", _PAST_THE_END),
}
# The same without an answer, by a part of the text that no URL has, for the text holds the request's.
_SILENCE_RULES: dict[str, tuple[str, str]] = {
    "StartTooLarge {": ("short_read", _PAST_THE_END),
    "tcp connect error": ("unreachable", _NO_CONNECTION),
    "kind: Connect": ("unreachable", _NO_CONNECTION),
    "kind: Timeout": ("timeout", "the store did not answer in time"),
}
_NO_PERMISSION = ("permission_denied", "permission denied: check the folder's owner and mode")
_NO_ROOM = ("disk_full", "no room for the object")
_NAME_CLASH = ("name_clash", "a folder cannot hold a file and a folder of one name")
_ERRNO_RULES: dict[int, tuple[str, str]] = {
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), _NO_PERMISSION),
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), _NO_ROOM),
    **dict.fromkeys((errno.EISDIR, errno.ENOTDIR), _NAME_CLASH),
}


@contextmanager
def _told(url: str, key: str = "") -> Iterator[None]:
    """Turn what the system or obstore raises into our errors; the one place that knows theirs."""
    try:
        yield
    except (OSError, ObstoreError) as error:
        raise _error_of(error, url, key) from error


def _error_of(error: Exception, url: str, key: str) -> TidelakeError:
    facts: dict[str, Any] = {"key": key, "store": url} if key else {"store": url}
    if isinstance(error, OSError) and error.errno is not None:
        kind, message = _ERRNO_RULES.get(error.errno, ("storage", "the disk did not do it"))
        return StorageError(message, kind=kind, **facts, reason=error.strerror)
    text = str(error)
    answer = [found[1] for found in (_S3_CODE.search(text), _STATUS.search(text)) if found]
    if isinstance(error, FileNotFoundError) and "NoSuchBucket" not in answer:
        return _missing(key, url)
    if isinstance(error, ObstoreAlreadyExistsError) and "409" not in answer:
        return _taken(key, url)
    rules = [_ANSWER_RULES[name] for name in answer if name in _ANSWER_RULES]
    if not answer:
        rules = [rule for part, rule in _SILENCE_RULES.items() if part in text]
    if rules:
        kind, message = rules[0]
        return StorageError(message, kind=kind, **facts)
    reason = " ".join(text.partition("Debug source:")[0].split())
    return StorageError("the store did not do it", **facts, reason=reason[:300])


def _missing(key: str, url: str) -> NotFoundError:
    return NotFoundError("no such object", key=key, store=url)


def _taken(key: str, url: str) -> AlreadyExistsError:
    return AlreadyExistsError("the key is taken", key=key, store=url)


def _short(key: str, url: str) -> StorageError:
    return StorageError(_PAST_THE_END, kind="short_read", key=key, store=url)


def _check_prefix(prefix: str) -> None:
    if prefix:
        check_key(prefix)


def _check_ranges(key: str, ranges: Sequence[Range], url: str) -> None:
    check_key(key)
    for start, length in ranges:
        if start < 0 or length < 0:
            raise InvalidInputError("a range begins at 0 or later and is not negative", start=start, length=length)
        if start + length > MAX_OFFSET:
            raise _short(key, url)


def _merged(ranges: Sequence[Range]) -> tuple[list[int], list[int]]:
    """Give starts and ends of requests that hold all ranges; obstore's own merging panics past an object's end."""
    starts: list[int] = []
    ends: list[int] = []
    for start, length in sorted(wanted for wanted in ranges if wanted[1]):
        if ends and start - ends[-1] <= COALESCE_BYTES:
            ends[-1] = max(ends[-1], start + length)
        else:
            starts.append(start)
            ends.append(start + length)
    return starts, ends


def _check_tail(key: str, length: int) -> None:
    check_key(key)
    if not 0 < length <= MAX_OFFSET:
        raise InvalidInputError("a tail has at least one byte", length=length)


def _unfit_reason(key: str) -> str | None:
    if not key:
        return "it is empty"
    if _UNFIT.search(key):
        return "it has a control character or a backslash"
    if len(key.encode()) > MAX_KEY_BYTES:
        return f"it is longer than {MAX_KEY_BYTES} bytes"
    segments = key.split("/")
    for segment in segments:
        if segment in ("", ".", ".."):
            return "it is absolute, or has an empty segment, . or .."
        if len(segment.encode()) > MAX_SEGMENT_BYTES:
            return f"a segment is longer than {MAX_SEGMENT_BYTES} bytes"
        if segment.startswith(TEMPORARY_PREFIX):
            return f"{TEMPORARY_PREFIX} is for unfinished writes"
    if segments[0].startswith(CATALOG_FILE):
        return f"{CATALOG_FILE} is the catalog's, beside the objects"
    return None


def _encoded(name: str) -> str:
    """Percent-encode all but letters, digits, _ and -, so that a name is one harmless segment."""
    if not name or _UNFIT.search(name.replace("\\", "")):
        raise InvalidInputError("a name is empty or has a control character", name=ascii(name[:80]), kind="bad_name")
    return quote(name, safe="").replace(".", "%2E").replace("~", "%7E")


def _digits(version: int) -> str:
    if not 0 <= version <= MAX_VERSION:
        raise InvalidInputError("no such version", version=version, allowed=f"0..{MAX_VERSION}")
    return f"{version:010d}"


def _view(data: Data) -> memoryview:
    return memoryview(data).cast("B")


def _meta_of(key: str, status: os.stat_result) -> ObjectMeta:
    return ObjectMeta(key, status.st_size, datetime.fromtimestamp(status.st_mtime, UTC))


def _meta_of_entry(key: str, entry: os.DirEntry[str]) -> ObjectMeta | None:
    """Describe a file, or nothing if no verb could name it or it has gone since."""
    with suppress(FileNotFoundError):
        if not _unfit_reason(key) and stat.S_ISREG((status := entry.stat()).st_mode):
            return _meta_of(key, status)
    return None


def _sync_folder(folder: str) -> None:
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)
