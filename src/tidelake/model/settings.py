"""Hold what a table was told when it was made, as its catalog keeps it.

What is as by default is left out of the stored shape, so that a default may change. It does not check values: those
who make tables do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tidelake.model.times import duration_us

FLUSH_AGE = "60s"  # or the age of the oldest: small extents cost more than they hold, old hot rows cost each reader
# The hot rows of a user are few and read by that user alone: they may wait until they are worth an object of their own.
USERS_FLUSH_AGE = "1d"
FLUSH_OFF = "off"
RETAINED_FROM = "retained_from"  # the time, in microseconds, before which the retention took rows away
HISTORY = "7d"  # time to notice a mistake, and to take it back
# How names of settings begin that speak of one column, whose name follows.
PROMOTED = "promoted:"  # made of a path: the dynamic column and the path
OVERFLOWED = "overflowed:"  # may have values in the overflow column
DEMOTED = "demoted:"  # dynamic by now: the type it had, for people
VECTOR_INDEX = "vector_index:"  # vectors that are found by an index: its metric and its codebook
SUFFIX = ("min_segments", "max_segments", "max_rows")  # the limits of uniting the last segments of a table with a key
# What ``format`` may be: ``tlm`` is the body that suits most tables, the others are one for good.
FORMATS = ("tlm", "tlm2", "tlm3", "parquet")
_EXTENT_FORMATS = {"tlm": "tlm3", "tlm2": "tlm"}  # as extents know themselves, where that is another name
SEGMENT_FORMAT = "parquet"  # of segments, which others read beside a manifest
SHARED, USER = "shared", "user"  # whose rows a table holds: everybody's in one, or each user's apart
SCOPES = (SHARED, USER)
KEPT = 64  # stored shapes whose reading is remembered


@dataclass(frozen=True, slots=True)
class TableSettings:
    """What a table was told when it was made, as its catalog keeps it."""

    time: str | None = None
    format: str = "tlm"
    retention: str | None = None
    flush_age: str = FLUSH_AGE
    promote: bool = False
    history: str = HISTORY  # how long older snapshots can be read
    cluster_by: tuple[str, ...] = ()  # columns by which compaction sorts rows before time
    upkeep: bool = True  # whether whoever writes does due upkeep by the way
    scope: str = SHARED  # or ``user``: each user's rows are a table of their own
    flush_rows: int | None = None  # hot rows past which they are flushed at once; by default as the engine finds best
    compaction: Mapping[str, int] = field(default_factory=dict)  # limits of uniting the last segments, if not SUFFIX
    key: tuple[str, ...] = ()  # columns whose values name a row: a later one with the same takes its place
    series: Mapping[str, Any] = field(default_factory=dict)  # what a table that keeps coverage was told besides
    vector_indexes: Mapping[str, Any] = field(default_factory=dict)  # by the names under which the settings have them

    @property
    def extent_format(self) -> str:
        """The format in which extents are written, as they know it themselves."""
        return extent_format(self.format)

    def to_json(self) -> dict[str, Any]:
        """Return the stored shape; what is as by default is left out, so that the default may change."""
        shape: dict[str, Any] = {"time": self.time, "format": self.format, "retention": self.retention}
        if self.flush_age != FLUSH_AGE:
            shape["flush_age"] = self.flush_age
        if self.promote:
            shape["promote"] = True
        if self.history != HISTORY:
            shape["history"] = self.history
        if self.cluster_by:
            shape["cluster_by"] = list(self.cluster_by)
        if not self.upkeep:
            shape["upkeep"] = False
        if self.scope != SHARED:
            shape["scope"] = self.scope
        if self.flush_rows is not None:
            shape["flush_rows"] = self.flush_rows
        if self.compaction:
            shape["compaction"] = dict(self.compaction)
        if self.key:
            shape["key"] = list(self.key)
        return shape | dict(self.series) | dict(self.vector_indexes)

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> TableSettings:
        """Read the stored shape; one that was read of late, which nobody changes, is not read again."""
        kept = _read_last.get(id(stored))
        if kept is not None and kept[0] is stored:
            return kept[1]
        found = cls._read(stored)
        if len(_read_last) >= KEPT:
            _read_last.clear()
        _read_last[id(stored)] = (stored, found)
        return found

    @classmethod
    def _read(cls, stored: Mapping[str, Any]) -> TableSettings:
        return cls(
            stored.get("time"),
            stored.get("format") or "tlm",
            stored.get("retention"),
            stored.get("flush_age") or FLUSH_AGE,
            bool(stored.get("promote")),
            stored.get("history") or HISTORY,
            tuple(stored.get("cluster_by") or ()),
            stored.get("upkeep") is not False,
            stored.get("scope") or SHARED,
            stored.get("flush_rows"),
            dict(stored.get("compaction") or {}),
            tuple(stored.get("key") or ()),
            vector_indexes={name: told for name, told in stored.items() if name.startswith(VECTOR_INDEX)},
        )

    @property
    def is_segmented(self) -> bool:
        """Whether extents are numbered segments in a folder for each scope; see ``objects.keys``."""
        return self.scope == USER or bool(self.key)

    @property
    def flush_age_us(self) -> int | None:
        """How old hot rows may get; None if they are not flushed by age."""
        return None if self.flush_age == FLUSH_OFF else duration_us(self.flush_age)

    @property
    def retention_us(self) -> int | None:
        """How old rows may get by their time column; None if they are kept for ever."""
        return None if self.retention is None else duration_us(self.retention)

    @property
    def history_us(self) -> int:
        """How old a snapshot may get once there is a newer one."""
        return duration_us(self.history)


def extent_format(format: str) -> str:
    """Return the name by which extents know the format that ``format`` asks for."""
    return _EXTENT_FORMATS.get(format, format)


def columns_under(prefix: str, settings: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Return the columns that settings of one sort name, with what they say."""
    return ((name.removeprefix(prefix), value) for name, value in settings.items() if name.startswith(prefix))


_read_last: dict[int, tuple[Mapping[str, Any], TableSettings]] = {}  # by the id of a shape, which is kept alive by it
