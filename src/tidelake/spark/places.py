"""Find the lake and the table that the options of a read or a write name.

Planning runs in the driver's Python, which keeps lakes open: a footer read for one plan is there for the next. A folder
that was removed and made again is another lake. Tasks open only the object store. Secrets are in the options and
nowhere else: not in splits, not in messages, not in errors. It does not read or write rows.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from tidelake.catalog import CATALOG_FILE
from tidelake.errors import InvalidInputError, redacted
from tidelake.handle.lake_handle import LakeHandle, OpenLake
from tidelake.handle.opening import open_lake
from tidelake.handle.table_handle import TableHandle
from tidelake.objects import ObjectStore, open_store
from tidelake.spark.options import LAKE, option
from tidelake.spark.outside import Outside


@dataclass(frozen=True, slots=True)
class Place:
    """A lake, as options name it."""

    lake: str
    objects: str | None = None
    endpoint: str | None = None
    access_key: str | None = None
    secret_key: str | None = None
    region: str | None = None

    def __repr__(self) -> str:
        return f"Place({redacted(self.lake)!r}, objects={self.objects!r})"

    @property
    def outside(self) -> Outside:
        """What opens files that are not the lake's, in buckets with the same credentials."""
        return Outside(self.endpoint, self.access_key, self.secret_key, self.region)

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Place:
        """Read the options; the environment's TIDELAKE_LAKE stands in for a lake that is not named."""
        lake = option(options, "lake") or os.environ.get("TIDELAKE_LAKE")
        if not lake:
            raise InvalidInputError("name the lake with option lake", kind="no_lake")
        return cls(lake, *(option(options, name) for name in LAKE[1:]))

    @classmethod
    def of_lake(cls, lake: OpenLake) -> Place:
        """Return the place of an open lake, so that other processes can open it too."""
        return cls.of_handle(lake.handle)

    @classmethod
    def of_handle(cls, lake: LakeHandle) -> Place:
        """Return the same, of a lake's handle."""
        where, store = lake.address, lake.store
        if "://" not in where and not where.startswith("log:"):
            where = os.path.abspath(where)  # other processes may be elsewhere
        held = getattr(store, "s3", None)  # of a bucket: with the credentials it was opened with
        if held is None:
            beside = store.url if where.startswith(("postgresql:", "postgres:")) else None
            return cls(where, beside)
        return cls(where, store.url, held.endpoint, held.key, held.secret, held.region)

    @classmethod
    def made(cls, lake: str | os.PathLike[str]) -> Place:
        """Return the place of a lake by its address; a folder that is not there yet is made."""
        handle = open_lake(lake)
        try:
            return cls.of_handle(handle)
        finally:
            handle.close()

    def open(self, *, create: bool = False) -> LakeHandle:
        """Open the lake, once in a process; what is not there is made if told so."""
        return _open_lake(self, _identity(self.lake), create)

    def options(self) -> dict[str, str]:
        """Return the options that name this place."""
        values = (self.lake, self.objects, self.endpoint, self.access_key, self.secret_key, self.region)
        return {name: value for name, value in zip(LAKE, values, strict=True) if value is not None}

    def open_objects(self, url: str) -> ObjectStore:
        """Open the lake's object store, known by its address, once in a process; the catalog is not asked."""
        return _open_objects(self, url)


def open_table(options: Mapping[str, str]) -> TableHandle:
    """Open the table that options name, as it is or as it was."""
    name = option(options, "table") or option(options, "path")
    if not name:
        raise no_table()
    snapshot = option(options, "snapshot")
    pinned = int(snapshot) if snapshot is not None and snapshot.isdigit() and len(snapshot) < 20 else snapshot
    lake, user = Place.of(options).open(), option(options, "user")
    return TableHandle.open(lake, name, as_of=option(options, "asOf"), snapshot=pinned, user=user)


def no_table() -> InvalidInputError:
    """Return how to name a table, also where Spark has lost the options of one that SQL made."""
    return InvalidInputError(
        "name the table with option table; spark does not pass on the options of a table that sql made: read it with "
        "spark.read.format('tidelake').option('table', …), insert into t with (lake '…', table '…')",
        kind="no_table",
    )


def _identity(lake: str) -> tuple[int, int] | None:
    """Return a folder's catalog from another that was later made in its place."""
    try:
        found = os.stat(os.path.join(lake.removeprefix("file://"), CATALOG_FILE))
    except OSError:
        return None  # elsewhere than on this machine's disk, or not there
    return found.st_dev, found.st_ino


@lru_cache(maxsize=16)
def _open_lake(place: Place, identity: tuple[int, int] | None, create: bool) -> LakeHandle:
    return open_lake(
        place.lake,
        objects=place.objects,
        endpoint=place.endpoint,
        key=place.access_key,
        secret=place.secret_key,
        region=place.region,
        create=create,
    )


@lru_cache(maxsize=16)
def _open_objects(place: Place, url: str) -> ObjectStore:
    if not url.startswith("s3://"):
        return open_store(url, create=False)
    return open_store(
        url, endpoint=place.endpoint, key=place.access_key, secret=place.secret_key, region=place.region, create=False
    )
