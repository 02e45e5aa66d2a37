"""Find the times in rows whose time column nobody named: by name, by content, in one column, two, or inside a value.

A column is looked for in this order, and the first that holds wins:

1. the usual names (``ts``, ``timestamp``, ``@timestamp``, ``UtcTime``, …), without regard to case and punctuation;
2. a date column and a time-of-day column together;
3. any other name that says time or date;
4. the usual names inside nested values (``System.TimeCreated.SystemTime``);
5. any column whose values are times by their content; a number only if it lies in the years 2000 to 2040.

A column holds if at least half of the sample's rows have a time there, all in one format; under a usual name fewer will
do, for rows without a time are then likely rows that lack one. A column in which all rows have one comes first. Where
two formats read the same texts differently (day and month), the rows of the whole sample decide, and where they cannot,
it is an error that names ``time_format=``. It does not read rows that are not in the sample: what is found here is used
on all of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.dynamic import cbor
from tidelake.errors import InvalidInputError
from tidelake.ingest.instants import NO_TIME, times_of_decimals, times_of_ints
from tidelake.ingest.text_columns import time_array
from tidelake.ingest.time_formats import RFC_3339, check_format, has_time_of_day, times_in
from tidelake.model.schema import DataType

JOINED_NAME = "ts"  # of the column that a date and a time make together, or that a nested time becomes
FEW = 20  # texts that every format is tried on, before all of the sample
MIN_SHARE = 0.5  # of the sample's rows with a time
FIRST_US, LAST_US = 946_684_800_000_000, 2_208_988_800_000_000  # 2000 and 2040, for numbers that no name speaks for
FIRST_NAMED_US = 10**14  # numbers before March 1973 are more likely durations than times

_USUAL = (
    "time", "timestamp", "ts", "attimestamp", "eventtime", "datetime", "utctime", "timeutc", "timecreated",
    "systemtime", "realtimetimestamp", "sourcerealtimetimestamp", "at", "createdat", "timeunixnano",
    "observedtimeunixnano", "timegenerated", "eventtimestamp", "frametimeepoch", "frametime", "starttime", "logtime",
    "dateandtime", "datumzeit", "zeitstempel", "horodatage", "date", "datum",
)  # fmt: skip
_DATES = ("date", "datum", "day", "fecha", "data", "logdate", "utcdate", "dateutc")
_DAYTIMES = ("time", "zeit", "uhrzeit", "heure", "hora", "logtime", "timeofday", "utctime", "timeutc")
_SAYS_TIME = re.compile(r"time|date|epoch|stamp|zeit|datum|heure|fecha", re.IGNORECASE)

_CLOCKS = ("%H:%M:%S", "%H:%M", "%I:%M:%S %p", "%I:%M %p")
_DAY_ORDERS = ("%m{0}%d{0}%Y", "%d{0}%m{0}%Y", "%m{0}%d{0}%y", "%d{0}%m{0}%y", "%y{0}%m{0}%d")
FORMATS: tuple[str, ...] = (
    RFC_3339,
    *(f"%Y{mark}%m{mark}%d%_{clock}%Z" for mark in "-/." for clock in ("%H:%M:%S", "%H:%M")),
    *(f"{order.format(mark)}{between}{clock}%Z" for mark in "/-" for order in _DAY_ORDERS
      for between in (" ", ", ") for clock in _CLOCKS),
    *(f"%d.%m.{year}{between}{clock}%Z" for year in ("%Y", "%y") for between in (" ", ", ") for clock in _CLOCKS[:2]),
    "%d/%b/%Y:%H:%M:%S %z", "%d/%b/%Y %H:%M:%S%Z", "%d-%b-%Y %H:%M:%S%Z", "%d %b %Y %H:%M:%S%Z", "%d %b %Y %H:%M%Z",
    "%a %b %d %H:%M:%S%Z %Y", "%a, %d %b %Y %H:%M:%S%Z", "%b %d, %Y %H:%M:%S%Z", "%b %d, %Y %I:%M:%S %p%Z",
    "%b %d %Y %H:%M:%S%Z", "%b %d, %Y, %I:%M:%S %p", "%d %b %Y, %H:%M:%S", "%a %b %d %Y %H:%M:%S%Z",
    "%Y%m%d%H%M%S", "%Y%m%dT%H%M%S%Z", "%Y%m%d %H%M%S", "%Y%m%d %H:%M:%S", "%Y%m%d-%H:%M:%S",
    "%y%m%d %H%M%S", "%y%m%d %H:%M:%S", "/Date(%s)/", "/Date(%s%z)/",
    "%b %d %H:%M:%S", "%b %d %H:%M:%S%Z", "%m.%d %H:%M:%S", "%d.%m %H:%M:%S", "%m-%d %H:%M:%S", "%m/%d %H:%M:%S",
    "%Y/%m/%d", "%Y.%m.%d", *(order.format(mark) for mark in "/-" for order in _DAY_ORDERS),
    "%d.%m.%Y", "%d.%m.%y", "%d %b %Y", "%d-%b-%Y", "%b %d, %Y", "%Y%m%d",
)  # fmt: skip

_STRING, _TIMESTAMP, _DYNAMIC = DataType("string"), DataType("timestamp"), DataType("dynamic")
_NUMBERS = ("int", "long", "real")


class Columns(Protocol):
    """What is asked of rows to find the times in them; see ``coerce.Source``."""

    @property
    def rows(self) -> int: ...
    def names(self) -> Iterator[str]: ...
    def proposed(self, name: str) -> DataType | None: ...
    def column(self, name: str, kind: DataType) -> pa.Array: ...


@dataclass(frozen=True, slots=True)
class TimeSource:
    """Where the time of a row is, and how it is written."""

    columns: tuple[str, ...]  # one, or a date and a time of day
    format: str = RFC_3339
    path: str | None = None  # inside the values of the one column

    @property
    def name(self) -> str:
        """The column that a table made for such rows keeps the time in."""
        return JOINED_NAME if len(self.columns) > 1 or self.path else self.columns[0]

    @property
    def shown(self) -> str:
        """What a message calls it."""
        return " + ".join(self.columns) if self.path is None else f"{self.columns[0]}.{self.path}"

    def is_native(self, name: str) -> bool:
        """Whether the column of this name holds times that need no format."""
        return self.format == RFC_3339 and self.path is None and self.columns == (name,)

    def times(self, rows: Columns, *, now_us: int) -> pa.Array:
        """Return the time of every row, null where it has none."""
        held = set(rows.names())
        if not held.issuperset(self.columns):
            return pa.nulls(rows.rows, _TIMESTAMP.arrow)
        if self.path is not None:
            return _nested_times(rows.column(self.columns[0], _DYNAMIC), self.path, self.format, now_us)
        if self.format == RFC_3339 and len(self.columns) == 1:
            return rows.column(self.columns[0], _TIMESTAMP)
        return time_array(times_in(joined_texts(rows, self.columns), self.format, now_us=now_us))


def find_time(rows: Columns, *, now_us: int, time: str | None = None, format: str | None = None) -> TimeSource | None:
    """Find where the times of these rows are; ``time`` names a column, two with a plus between, or a path."""
    types = {name: rows.proposed(name) for name in rows.names()}
    finder = _Finder(rows, types, now_us, check_format(format) if format else None)
    if time is not None:
        return finder.named(time)
    return finder.found()


def usual_names(names: Iterable[str]) -> list[str]:
    """Return the names that times usually have, without regard to case and punctuation, the most usual first."""
    found = {name: bare for name in names if (bare := _bare(name)) in _USUAL}
    return sorted(found, key=lambda name: _USUAL.index(found[name]))


def _bare(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def joined_texts(rows: Columns, columns: tuple[str, ...]) -> pa.Array:
    """Return the text of one column, or of a date and a time of day with a blank between."""
    texts = [_texts(rows, name) for name in columns]
    return texts[0] if len(texts) == 1 else pc.binary_join_element_wise(*texts, " ")


@dataclass(frozen=True, slots=True)
class _Finder:
    rows: Columns
    types: Mapping[str, DataType | None]
    now_us: int
    format: str | None

    def named(self, time: str) -> TimeSource | None:
        """Return the time that a caller named."""
        columns = tuple(part.strip() for part in time.split("+")) if time not in self.types else (time,)
        if all(name in self.types for name in columns):
            return self._of_columns(columns) or TimeSource(columns, self.format or RFC_3339)
        for column in self.types:
            if time.startswith(f"{column}.") and self.types[column] is None:
                path = time.removeprefix(f"{column}.")
                return self._of_path(column, path) or TimeSource((column,), self.format or RFC_3339, path)
        return None

    def found(self) -> TimeSource | None:
        """Return the first that holds, in the order of the module's docstring; a complete one before others."""
        some: TimeSource | None = None
        for source, least in self._candidates():
            share = self._share(source)
            if share == 1.0:
                return source
            if some is None and share > 0 and share >= least:
                some = source
        return some

    def _candidates(self) -> Iterator[tuple[TimeSource, float]]:
        """Return what may be the times, each with the share of rows that must have one there."""
        bare = {name: _bare(name) for name in self.types}
        usual = usual_names(self.types)
        whole = [name for name in usual if bare[name] not in _DATES]
        yield from self._each(whole, least=0.0)
        for date in (name for name in bare if bare[name] in _DATES):
            for clock in (name for name in bare if bare[name] in _DAYTIMES and name != date):
                if pair := self._of_columns((date, clock)):
                    yield pair, MIN_SHARE
        yield from self._each([name for name in usual if name not in whole])
        yield from self._each([name for name in bare if name not in usual and _SAYS_TIME.search(name)])
        for column in (name for name, kind in self.types.items() if kind is None):
            for path in _time_paths(self.rows.column(column, _DYNAMIC)):
                if nested := self._of_path(column, path):
                    yield nested, MIN_SHARE
        others = [name for name in bare if name not in usual and not _SAYS_TIME.search(name)]
        yield from self._each(others, by_content=True)

    def _each(
        self, names: list[str], *, by_content: bool = False, least: float = MIN_SHARE
    ) -> Iterator[tuple[TimeSource, float]]:
        for name in names:
            if source := self._of_columns((name,), by_content=by_content):
                yield source, least

    def _share(self, source: TimeSource) -> float:
        times = source.times(self.rows, now_us=self.now_us)
        return 1.0 - int(times.null_count) / max(len(times), 1)

    def _of_columns(self, columns: tuple[str, ...], *, by_content: bool = False) -> TimeSource | None:
        kinds = {name: kind.kind if (kind := self.types[name]) else "" for name in columns}
        if len(columns) == 1 and kinds[columns[0]] == "timestamp":
            return TimeSource(columns)
        if len(columns) == 1 and kinds[columns[0]] in _NUMBERS and self.format is None:
            texts = _texts(self.rows, columns[0])
            if texts is not None and (form := choose_format(texts, self.now_us, only=("%Y%m%d%H%M%S", "%Y%m%d"))):
                return TimeSource(columns, form)
            return self._of_numbers(columns[0], by_content=by_content)
        if len(columns) == 1 and not kinds[columns[0]] and not by_content:
            return TimeSource(columns)  # numbers and texts, or nothing that is a time
        if not all(kinds[name] in _TEXTS for name in columns):
            return None
        texts = joined_texts(self.rows, columns)
        if self.format is not None:
            is_any = (times_in(texts, self.format, now_us=self.now_us) != NO_TIME).any()
            return TimeSource(columns, self.format) if is_any else None
        form = choose_format(texts, self.now_us, column=" + ".join(columns))
        if form is None or (len(columns) > 1 and not has_time_of_day(form)):
            return None
        return TimeSource(columns, form)

    def _of_numbers(self, name: str, *, by_content: bool) -> TimeSource | None:
        times = self.rows.column(name, _TIMESTAMP).drop_null().view(pa.int64())
        if not len(times):
            return None
        low, high = pc.min(times).as_py(), pc.max(times).as_py()
        if by_content:
            return TimeSource((name,)) if low >= FIRST_US and high < LAST_US else None
        return TimeSource((name,)) if low >= FIRST_NAMED_US else None

    def _of_path(self, column: str, path: str) -> TimeSource | None:
        found = cbor.extract(self.rows.column(column, _DYNAMIC), path)
        texts = found.as_type(_STRING)
        if texts.null_count < len(texts):
            form = self.format or choose_format(texts, self.now_us, column=f"{column}.{path}")
            return TimeSource((column,), form, path) if form else None
        times = found.as_type(DataType("real"))
        return TimeSource((column,), RFC_3339, path) if times.null_count < len(times) else None


_TEXTS = ("string", "timestamp", *_NUMBERS)


def choose_format(texts: pa.Array, now_us: int, *, column: str = "", only: tuple[str, ...] = FORMATS) -> str | None:
    """Return the format that reads at least half of these texts, or None; an error where two read them differently."""
    held = texts.filter(pc.not_equal(pc.ascii_trim_whitespace(texts.fill_null("")), ""))
    if not len(held):
        return None
    if only is FORMATS and _may_be_rfc(held) and (times_in(held, RFC_3339, now_us=now_us) != NO_TIME).all():
        return RFC_3339
    few = held.take(pa.array(np.linspace(0, len(held) - 1, min(FEW, len(held))).astype(np.int64)))
    trials = {form: _count(few, form, now_us) for form in only}
    likely = [form for form, count in trials.items() if count >= max(1, len(few) * MIN_SHARE)]
    read = {form: times_in(held, form, now_us=now_us) for form in likely}
    counts = {form: int(np.count_nonzero(times != NO_TIME)) for form, times in read.items()}
    best = max(counts.values(), default=0)
    if best < max(1, len(held) * MIN_SHARE):
        return None
    chosen = [form for form, count in counts.items() if count == best]
    for other in chosen[1:]:
        differs = np.flatnonzero(read[other] != read[chosen[0]])
        if len(differs):
            raise InvalidInputError(
                "day and month cannot be told apart: say which with time_format=",
                **({"column": column} if column else {}), value=repr(held[int(differs[0])].as_py()),
                formats=" or ".join(repr(form.replace("%_", " ").removesuffix("%Z")) for form in (chosen[0], other)),
                kind="ambiguous_time",
            )  # fmt: skip
    return chosen[0]


def _may_be_rfc(texts: pa.Array) -> bool:
    """Whether the first text begins as an RFC 3339 time or a number since 1970 does."""
    return bool(re.match(r"\s*(?:[0-9]{4}-[0-9]{2}-[0-9]{2}|[0-9]{9})", texts[0].as_py()))


def _count(texts: pa.Array, form: str, now_us: int) -> int:
    if form == RFC_3339 and not any(_may_be_rfc(texts[at : at + 1]) for at in range(len(texts))):
        return 0
    return int(np.count_nonzero(times_in(texts, form, now_us=now_us) != NO_TIME))


def _texts(rows: Columns, name: str) -> Any:
    """Return a column as text: as it was written, where the rows know that."""
    as_written = getattr(rows, "texts", None)
    return as_written(name) if as_written else rows.column(name, _STRING)


def _nested_times(values: pa.Array, path: str, form: str, now_us: int) -> pa.Array:
    found = cbor.extract(values, path)
    times: npt.NDArray[np.int64] = times_in(found.as_type(_STRING), form, now_us=now_us)
    whole = found.as_type(DataType("long"))
    numbers = times_of_ints(whole.fill_null(0).to_numpy())
    is_real = (found.kinds == cbor.REAL_KIND) & np.asarray(whole.is_null())
    if is_real.any():
        decimals = pa.array(found.reals).cast(pa.string())
        numbers = np.where(is_real, times_of_decimals(decimals), numbers)
    is_number = is_real | ~np.asarray(whole.is_null())
    return time_array(np.where(is_number, numbers, times))


def _time_paths(values: pa.Array) -> list[str]:
    """Return the paths inside values whose last step says time, the usual names first."""
    found = cbor.PathTable().add(values.drop_null())
    ranked = []
    for path in found.paths if found is not None else ():
        steps = [_bare(step) for step in path.split(".")]
        rank = next((_USUAL.index(last) for last in (steps[-1], "".join(steps[-2:])) if last in _USUAL), None)
        if rank is not None:
            ranked.append((len(steps) > 4, rank, path))
    return [path for _, _, path in sorted(ranked)]
