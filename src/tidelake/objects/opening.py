"""Open the store at a place: a folder, memory or a bucket.

It does not read or write objects, but for one that shows whether a server keeps its word.
"""

from __future__ import annotations

import os
import re
import secrets
from contextlib import suppress
from typing import TYPE_CHECKING, TypedDict, Unpack
from urllib.parse import unquote, urlsplit

from tidelake.errors import AlreadyExistsError, InvalidInputError, StorageError
from tidelake.objects.folder import open_folder
from tidelake.objects.keys import DATA_FOLDER, PROBE_PREFIX
from tidelake.objects.protocol import ACCEPTED, DEADLINE_S, ObjectStore
from tidelake.runtime.deferred import deferred

if TYPE_CHECKING:
    from tidelake.objects import remote
else:
    remote = deferred("tidelake.objects.remote")  # brings obstore, which a folder does without

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")


class BucketOptions(TypedDict, total=False):
    """What a bucket is opened with; other stores take none of it."""

    endpoint: str | None
    key: str | None
    secret: str | None
    region: str | None


def open_store(
    where: str | os.PathLike[str],
    *,
    create: bool = True,
    deadline_s: float = DEADLINE_S,
    **bucket: Unpack[BucketOptions],
) -> ObjectStore:
    """Open the store at a folder, ``file://``, ``memory://`` or ``s3://`` place; nothing is asked of a bucket yet.

    ``create`` makes a missing folder; a bucket is never made. Each ``memory://`` is new and empty, while a named one is
    shared within the process. Without key and secret, the environment's AWS credentials are used. Plain http is spoken
    only to an endpoint given as ``http://``. A bucket's server may be silent for a third of the deadline.
    """
    text = os.fspath(where)
    scheme = found[1].lower() if (found := _SCHEME.match(text)) else None
    if scheme == "s3":
        return remote.Bucket(remote.parse_s3(text, deadline_s=deadline_s, **bucket))
    if any(bucket.values()):
        raise InvalidInputError("endpoint, key, secret and region are for s3:// only", store=text)
    match scheme:
        case None:
            return open_folder(text, create=create)
        case "file":
            return open_folder(_parse_file_url(text), create=create)
        case "memory":
            return remote.open_memory(text.partition("://")[2])
        case _:
            raise InvalidInputError(f"cannot open {scheme}://", store=text, accepted=ACCEPTED)


def probe_conditional_put(store: ObjectStore, prefix: str = "") -> None:
    """Refuse a store that ignores the condition of a conditional put, as some S3 servers silently do."""
    key = f"{prefix}/" * bool(prefix) + f"{PROBE_PREFIX}{secrets.token_hex(8)}"
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


def ensure_conditional_put(store: ObjectStore) -> None:
    """Probe a store before the first write that needs the condition, once for each place in this process.

    A folder and memory keep it by themselves. A place where nothing may be written is left for the write to say so.
    """
    place = getattr(store, "place", None)
    if getattr(store, "keeps_conditions", False) or (place is not None and place in _probed):
        return
    try:
        probe_conditional_put(store, DATA_FOLDER)  # where collection finds what a crash leaves
    except StorageError as error:
        if error.kind not in ("permission_denied", "read_only"):
            raise
        return
    if place is not None:
        _probed.add(place)


_probed: set[object] = set()  # places whose servers are known to keep the condition


def _parse_file_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost") or not parts.path or parts.query or parts.fragment:
        raise InvalidInputError("a file URL is file:///absolute/folder", store=url, accepted=ACCEPTED)
    return unquote(parts.path)
