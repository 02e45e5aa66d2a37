"""Open a lake by its address.

::

    lake                                      a folder: SQLite catalog and objects inside it
    postgresql://…, objects s3://bucket/…     for many machines
    log:/data/prices                          one table with its own transaction log

A folder is made on first use; one that holds tables of segments with their manifests is adopted, and one that holds
anything else is refused. It does not read or write rows.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import xxhash

from tidelake.catalog import CATALOG_FILE, open_catalog
from tidelake.errors import InvalidInputError, redacted
from tidelake.handle.lake_handle import AfterWrite, LakeHandle
from tidelake.objects import ensure_conditional_put, open_store
from tidelake.objects.opening import BucketOptions
from tidelake.objects.protocol import DEADLINE_S
from tidelake.runtime.deferred import deferred

if TYPE_CHECKING:
    from tidelake.catalog.log import log_catalog
    from tidelake.manifest import adopt as adopting
else:
    log_catalog, adopting = deferred("tidelake.catalog.log.log_catalog"), deferred("tidelake.manifest.adopt")

LOG_SCHEME = "log:"
NODE_FOLDER = f"{CATALOG_FILE}-manifests"  # beside a catalog in a folder, under a name that no object can have
CACHE_VARIABLE = "TIDELAKE_CACHE"


def open_lake(
    where: str | os.PathLike[str],
    *,
    objects: str | os.PathLike[str] | None = None,
    create: bool = True,
    deadline: float = DEADLINE_S,
    after_write: AfterWrite | None = None,
    cache: str | os.PathLike[str] | None = None,
    adopt: Mapping[str, Sequence[str]] | None = None,
    **bucket: Unpack[BucketOptions],
) -> LakeHandle:
    """Open a lake as ``tidelake.connect`` says, and return its handle; somebody may look after what is written to."""
    place = os.path.expanduser(os.fspath(where))  # ~ is the shell's word for one's home, and Python's nobody's
    if not 0 < deadline < math.inf:
        raise InvalidInputError("a deadline is a number of seconds above 0", deadline=deadline, kind="bad_deadline")
    if place.startswith(LOG_SCHEME):
        store = open_store(place.removeprefix(LOG_SCHEME), create=create, deadline_s=deadline, **bucket)
        log = log_catalog.open_log_catalog(store, create=create)
        return LakeHandle(log, store, place, deadline, after_write=after_write)
    if place.startswith(("postgresql://", "postgres://")):
        if objects is None:
            raise InvalidInputError("a postgresql catalog needs objects=, a folder or s3://bucket/prefix")
        store = open_store(objects, create=create, deadline_s=deadline, **bucket)
        if store.url.startswith("s3://"):
            ensure_conditional_put(store)
        catalog = open_catalog(place, deadline_s=deadline)
        node = _cache_folder(cache) / _cache_name(place, store.url)
        return LakeHandle(catalog, store, place, deadline, after_write=after_write, node=node)
    if "://" in place and not place.startswith("file://"):
        raise InvalidInputError(
            f"{place!r} is not a lake: give a folder, postgresql://… with objects=, or log:/root", kind="bad_address"
        )
    folder = Path(place.removeprefix("file://"))
    if _holds_other_than_a_lake(folder):
        adopting.adopt_if_segments(folder, adopt or {}, deadline_s=deadline)
    catalog = open_catalog(folder, create=create, deadline_s=deadline)
    store = open_store(folder if objects is None else objects, create=create, deadline_s=deadline, **bucket)
    node = folder / NODE_FOLDER if cache is None else _cache_folder(cache) / _cache_name(str(folder), store.url)
    return LakeHandle(catalog, store, place, deadline, after_write=after_write, node=node)


def _holds_other_than_a_lake(folder: Path) -> bool:
    """Whether a folder has something in it, but no catalog; one that cannot be looked at is refused later."""
    try:
        return folder.is_dir() and not (folder / CATALOG_FILE).exists() and any(folder.iterdir())
    except OSError:
        return False


def _cache_folder(told: str | os.PathLike[str] | None) -> Path:
    """Return the folder in which a node keeps copies: as told, as the environment says, or the user's own."""
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(os.path.expanduser(told or os.environ.get(CACHE_VARIABLE) or f"{home}/tidelake"))


def _cache_name(place: str, objects: str) -> str:
    """Name a lake among others: by its address without what is secret, and its objects."""
    absolute = redacted(place) if "://" in place else os.path.abspath(place)
    return xxhash.xxh3_128_hexdigest(f"{absolute}\n{objects}".encode())
