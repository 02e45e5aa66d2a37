"""Make rows of messages that a broker delivered, in columns where they are as most are.

A message is a JSON object, and becomes a line of JSON; or it is framed as schema registries have it, and becomes a dict
by a decoder (``registered``). One that does not name the table's time gets the broker's own time for it, written in
front: of a key that comes twice the last counts. Messages with line breaks in them, or with a time that is null, are
read and written again one by one. What is no JSON is found by whoever reads the lines: ``parted`` finds the bad ones
among many with few tries. It does not know brokers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc

FRAMED = (b"\0", b"\1")  # the first byte of a message that names its schema; JSON never begins so
SCHEMA_HEADER = "__value_schema_id"  # in which a message may name it instead, by the same bytes

Headers: TypeAlias = Mapping[str, str | bytes | None] | Sequence[tuple[str, str | bytes | None]]

_BYTES = pa.large_binary()
_LINE_END = pa.scalar(b"\n", _BYTES)
_NOTHING = pa.scalar(b"", _BYTES)


class BadMessage(ValueError):
    """A message that no row can be made of."""


class Decoder(Protocol):
    """Reads messages that name their schema."""

    def decode(self, value: bytes) -> dict[str, Any]:
        """Return a message as a row; BadMessage if there is none in it."""


@dataclass(frozen=True, slots=True)
class Messages:
    """Messages in columns: what each says, where it came from, and when, if the broker knows."""

    values: pa.Array  # large_binary
    topics: pa.Array  # string
    partitions: pa.Array
    offsets: pa.Array
    times_us: pa.Array  # int64

    def __len__(self) -> int:
        return len(self.values)

    def slice(self, start: int, length: int) -> Messages:
        """Return some of them."""
        return Messages(*(column.slice(start, length) for column in self._columns()))

    def filter(self, mask: npt.NDArray[np.bool_]) -> Messages:
        """Return those that a mask chooses."""
        chosen = pa.array(mask)
        return Messages(*(column.filter(chosen) for column in self._columns()))

    def source(self, at: int) -> str:
        """Return where one came from: topic/partition/offset."""
        return f"{self.topics[at]}/{self.partitions[at]}/{self.offsets[at]}"

    def value(self, at: int) -> bytes:
        """Return what one says."""
        return bytes(self.values[at].as_py() or b"")

    def time_us(self, at: int) -> int | None:
        """Return when one came to be, if that is known."""
        found: int | None = self.times_us[at].as_py()
        return found

    def _columns(self) -> tuple[pa.Array, ...]:
        return (self.values, self.topics, self.partitions, self.offsets, self.times_us)


def framed(value: bytes | None, headers: Headers | None) -> bytes | None:
    """Return a message as it would be if it named its schema itself, where a header of it does."""
    if not value or not headers:
        return value
    named = dict(headers).get(SCHEMA_HEADER)
    return named + value if isinstance(named, bytes) and named.startswith(FRAMED) else value


def messages_of(
    values: Sequence[bytes | None],
    places: Sequence[tuple[str, int, int]],
    times_us: Sequence[int | None],
) -> Messages:
    """Return messages from lists: values, places (topic, partition, offset) and times."""
    topics, partitions, offsets = zip(*places, strict=True) if places else ((), (), ())
    return Messages(
        pa.array(values, _BYTES), pa.array(topics, pa.string()), pa.array(partitions, pa.int32()),
        pa.array(offsets, pa.int64()), pa.array(times_us, pa.int64()),
    )  # fmt: skip


Bad: TypeAlias = tuple[int, str]  # which message, and what is wrong with it


@dataclass(frozen=True, slots=True)
class Parsed:
    """Messages as rows: lines of JSON, or dicts; ``at`` tells which message each is of."""

    rows: pa.Array | list[dict[str, Any]]
    at: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.at)

    def source(self) -> Any:
        """Return them as what ``append`` takes."""
        if isinstance(self.rows, list):
            return self.rows
        joined = pc.binary_join_element_wise(self.rows, _NOTHING, _LINE_END)
        buffer = joined.buffers()[2]
        return b"" if buffer is None else buffer

    def part(self, start: int, stop: int) -> Parsed:
        """Return some of them."""
        rows = self.rows[start:stop] if isinstance(self.rows, list) else self.rows.slice(start, stop - start)
        return Parsed(rows, self.at[start:stop])

    def without(self, bad: Sequence[Bad]) -> Parsed:
        """Return them without those of some messages."""
        kept = ~np.isin(self.at, [at for at, _ in bad])
        if isinstance(self.rows, list):
            return Parsed([row for row, is_kept in zip(self.rows, kept, strict=True) if is_kept], self.at[kept])
        return Parsed(self.rows.filter(pa.array(kept)), self.at[kept])


def parsed(messages: Messages, time: str | None, decoder: Decoder | None = None) -> tuple[Parsed, list[Bad]]:
    """Return messages as rows, in their order, and those that are none; messages without a value are left out."""
    at = np.flatnonzero(np.asarray(pc.fill_null(pc.binary_length(messages.values), 0)) > 0)
    if not len(at):
        return Parsed(pa.array([], _BYTES), at), []
    values = messages.values if len(at) == len(messages) else messages.values.take(pa.array(at))
    if decoder is not None and any(pc.any(pc.starts_with(values, first)).as_py() for first in FRAMED):
        return _as_dicts(messages, at, time, decoder)
    return _as_lines(messages, values, at, time)


def _as_lines(
    messages: Messages, values: pa.Array, at: npt.NDArray[np.int64], time: str | None
) -> tuple[Parsed, list[Bad]]:
    is_odd = pc.match_substring(values, "\n")
    lacks_time = None
    if time is not None:
        name = orjson.dumps(time).decode()
        lacks_time = pc.and_(pc.invert(pc.match_substring(values, name)), pc.starts_with(values, "{"))
        is_odd = pc.or_(is_odd, pc.match_substring_regex(values, _quoted(name) + r"\s*:\s*null"))
        if pc.any(lacks_time).as_py():
            values = pc.if_else(lacks_time, _timed(values, messages.times_us.take(pa.array(at)), name), values)
    odd = np.flatnonzero(np.asarray(is_odd))
    if not len(odd):
        return Parsed(values, at), []
    bad: list[Bad] = []
    again: list[bytes] = []
    for place in at[odd]:
        try:
            again.append(orjson.dumps(_read(messages, int(place), time)))
        except BadMessage as error:
            again.append(b"")
            bad.append((int(place), str(error)))
    lines = Parsed(pc.replace_with_mask(values, is_odd, pa.array(again, _BYTES)), at)
    return lines.without(bad), bad


def _timed(values: pa.Array, times_us: pa.Array, name: str) -> pa.Array:
    """Return objects with the broker's time in front, where it is known."""
    times = pc.strftime(times_us.cast(pa.timestamp("us")), format="%Y-%m-%dT%H:%M:%SZ").cast(_BYTES)
    is_blank = pc.match_substring_regex(values, r"^\{\s*\}")
    comma = pc.if_else(is_blank, _NOTHING, pa.scalar(b",", _BYTES))
    begin, quote = pa.scalar(b'{%b:"' % name.encode(), _BYTES), pa.scalar(b'"', _BYTES)
    rest = pc.binary_replace_slice(values, 0, 1, b"")
    made = pc.binary_join_element_wise(begin, times, quote, comma, rest, _NOTHING)
    return pc.coalesce(made, values)


def _as_dicts(
    messages: Messages, at: npt.NDArray[np.int64], time: str | None, decoder: Decoder
) -> tuple[Parsed, list[Bad]]:
    """Decode messages one by one: libraries for schemas do no better."""
    rows: list[dict[str, Any]] = []
    good: list[int] = []
    bad: list[Bad] = []
    for place in at.tolist():
        try:
            rows.append(_read(messages, place, time, decoder))
            good.append(place)
        except BadMessage as error:
            bad.append((place, str(error)))
    return Parsed(rows, np.array(good, np.int64)), bad


def _read(messages: Messages, at: int, time: str | None, decoder: Decoder | None = None) -> dict[str, Any]:
    """Return a message as a dict that has a time, if one is known."""
    value = messages.value(at)
    if decoder is not None and value.startswith(FRAMED):
        row = decoder.decode(value)
    else:
        try:
            row = orjson.loads(value)
        except ValueError as error:
            raise BadMessage(f"not JSON: {error}") from error
    if not isinstance(row, Mapping):
        raise BadMessage("not an object")
    known_us = messages.time_us(at)
    if time is not None and row.get(time) is None and known_us is not None:
        row[time] = datetime.fromtimestamp(known_us / 1e6, UTC).isoformat()
    return row


def parted(rows: Parsed, is_bad: Callable[[Parsed], str | None]) -> tuple[Parsed, list[Bad]]:
    """Part rows into good ones and, each with what is wrong with it, bad ones; ``is_bad`` judges several at once."""
    bad = [(int(part.at[0]), wrong) for part, wrong in _halves(rows, is_bad) if wrong is not None]
    return rows.without(bad), bad


def _halves(rows: Parsed, is_bad: Callable[[Parsed], str | None]) -> Iterator[tuple[Parsed, str | None]]:
    """Yield runs of rows that are good together, and single bad ones; few bad rows among many take few tries."""
    if not len(rows):
        return
    wrong = is_bad(rows)
    if wrong is None or len(rows) == 1:
        yield rows, wrong
        return
    middle = len(rows) // 2
    yield from _halves(rows.part(0, middle), is_bad)
    yield from _halves(rows.part(middle, len(rows)), is_bad)


def _quoted(text: str) -> str:
    """Return a regular expression that means a text."""
    return "".join(each if each.isalnum() or each == "_" or ord(each) > 127 else "\\" + each for each in text)
