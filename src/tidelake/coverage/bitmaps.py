"""Read the runs out of many 64-bit roaring bitmaps at once.

The bitmaps lie one after the other in the portable serialisation: a count of 32-bit bitmaps, each with its upper half,
and in each of those containers of up to 65,536 values, kept as runs, as a sorted list or as bits. All containers of all
bitmaps are read together, by a few NumPy calls over the whole; there is no loop over bitmaps, containers or values. It
does not write bitmaps: ``pyroaring`` does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tidelake.coverage.buckets import Ids, Longs, from_ids
from tidelake.errors import CorruptError

WITH_RUNS, WITHOUT_RUNS = 12347, 12346  # the cookies of a 32-bit bitmap
MAX_LISTED = 4096  # values of a container that is kept as a list
BITS_BYTES = 8192  # of a container that is kept as bits
OFFSETS_FROM = 4  # containers, from which a bitmap with runs says where each one is
BITS_AT_ONCE = 256  # containers of bits that are spread out in memory together, 64 KiB each

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Runs:
    """Stretches of buckets, first and last included, by the owner's number; sorted, apart, and not touching."""

    owner: Longs
    first: Longs
    last: Longs

    def __len__(self) -> int:
        return len(self.owner)

    @property
    def lengths(self) -> Longs:
        """How many buckets each run has."""
        return self.last - self.first + 1


def read_runs(bitmaps: Sequence[bytes]) -> Runs:
    """Return the runs of serialised bitmaps; owners are numbered as the bitmaps are."""
    data = np.frombuffer(b"".join(bitmaps), dtype=np.uint8)
    sizes = np.fromiter(map(len, bitmaps), dtype=np.int64, count=len(bitmaps))
    try:
        return _read(data, np.cumsum(sizes) - sizes)
    except IndexError as error:
        raise CorruptError("a bitmap ends before it should", kind="bad_bitmap") from error


def joined(owner: Longs, first: Ids, last: Ids) -> Runs:
    """Make runs of stretches that are sorted and may touch."""
    if not len(owner):
        return Runs(owner, from_ids(first), from_ids(last))
    begins = np.ones(len(owner), dtype=bool)
    begins[1:] = (owner[1:] != owner[:-1]) | (first[1:] != last[:-1] + np.uint64(1))
    at = np.flatnonzero(begins)
    return Runs(owner[at], from_ids(first[at]), from_ids(last[np.append(at[1:], len(owner)) - 1]))


@dataclass(frozen=True, slots=True)
class _Containers:
    """Where containers are, whose they are, and what their values begin with."""

    owner: Longs
    base: Ids
    at: Longs
    card: Longs
    is_run: npt.NDArray[np.bool_]

    def only(self, chosen: npt.NDArray[np.bool_]) -> _Containers:
        return _Containers(
            self.owner[chosen], self.base[chosen], self.at[chosen], self.card[chosen], self.is_run[chosen]
        )


def _read(data: Bytes, starts: Longs) -> Runs:
    parts: list[tuple[Longs, Ids, Ids]] = []
    left, at = _number(data, starts, 8), starts + 8
    owner = np.arange(len(starts), dtype=np.int64)
    while len(owner := owner[left[owner] > 0]):
        high = _number(data, at[owner], 4).astype(np.uint64) << np.uint64(32)
        containers, size = _containers(data, owner, high, at[owner] + 4)
        parts += _stretches(data, containers)
        at[owner] += 4 + size
        left[owner] -= 1
    empty = np.empty(0, dtype=np.int64)
    owners = np.concatenate([part[0] for part in parts]) if parts else empty
    first = np.concatenate([part[1] for part in parts]) if parts else empty.view(np.uint64)
    last = np.concatenate([part[2] for part in parts]) if parts else empty.view(np.uint64)
    if len(parts) > 1:
        order = np.lexsort((first, owners))
        owners, first, last = owners[order], first[order], last[order]
    return joined(owners, first, last)


def _containers(data: Bytes, owner: Longs, high: Ids, at: Longs) -> tuple[_Containers, Longs]:
    """Read the headers of 32-bit bitmaps, and give their containers and the bitmaps' sizes."""
    cookie = _number(data, at, 4)
    with_runs = cookie & 0xFFFF == WITH_RUNS
    if not (with_runs | (cookie == WITHOUT_RUNS)).all():
        raise CorruptError("not a bitmap", kind="bad_bitmap")
    count = np.where(with_runs, (cookie >> 16) + 1, 0)
    count[~with_runs] = _number(data, at[~with_runs] + 4, 4)
    if (count > 1 << 16).any():
        raise CorruptError("a bitmap has too many containers", kind="bad_bitmap")
    keys_at = at + np.where(with_runs, 4 + (count + 7) // 8, 8)
    has_offsets = ~with_runs | (count >= OFFSETS_FROM)
    which, number = _spread(count)
    key = _number(data, keys_at[which] + 4 * number, 2)
    card = _number(data, keys_at[which] + 4 * number + 2, 2) + 1
    is_run = with_runs[which]
    flags = _number(data, (at + 4)[which][is_run] + number[is_run] // 8, 1)
    is_run[is_run] = (flags >> (number[is_run] % 8)) & 1 == 1
    place = (keys_at + 4 * count)[which]
    told = has_offsets[which]
    place[told] = at[which][told] + _number(data, place[told] + 4 * number[told], 4)
    sizes = np.zeros(len(which), dtype=np.int64)
    for turn in range(OFFSETS_FROM):  # containers whose places are not told follow each other, and are few
        here = np.flatnonzero(~told & (number == turn)) if turn else np.flatnonzero(told | (number == 0))
        if turn:
            place[here] = place[here - 1] + sizes[here - 1]
        sizes[here] = _sizes(data, place[here], card[here], is_run[here])
    ends = np.cumsum(count) - 1
    size = np.where(count > 0, (place + sizes)[ends] - at if len(which) else 8, 8)
    return _Containers(owner[which], high[which] | (key.astype(np.uint64) << np.uint64(16)), place, card, is_run), size


def _sizes(data: Bytes, at: Longs, card: Longs, is_run: npt.NDArray[np.bool_]) -> Longs:
    sizes: Longs = np.where(card > MAX_LISTED, BITS_BYTES, 2 * card)
    sizes[is_run] = 2 + 4 * _number(data, at[is_run], 2)
    return sizes


def _stretches(data: Bytes, containers: _Containers) -> list[tuple[Longs, Ids, Ids]]:
    found = []
    runs = containers.only(containers.is_run)
    if len(runs.owner):
        which, number = _spread(_number(data, runs.at, 2))
        place = runs.at[which] + 2 + 4 * number
        first = runs.base[which] + _number(data, place, 2).astype(np.uint64)
        found.append((runs.owner[which], first, first + _number(data, place + 2, 2).astype(np.uint64)))
    lists = containers.only(~containers.is_run & (containers.card <= MAX_LISTED))
    if len(lists.owner):
        which, number = _spread(lists.card)
        values = lists.base[which] + _number(data, lists.at[which] + 2 * number, 2).astype(np.uint64)
        found.append((lists.owner[which], values, values))
    bits = containers.only(~containers.is_run & (containers.card > MAX_LISTED))
    for start in range(0, len(bits.owner), BITS_AT_ONCE):
        chosen = np.zeros(len(bits.owner), dtype=bool)
        chosen[start : start + BITS_AT_ONCE] = True
        found.append(_bit_stretches(data, bits.only(chosen)))
    return found


def _bit_stretches(data: Bytes, bits: _Containers) -> tuple[Longs, Ids, Ids]:
    rows = data[bits.at[:, None] + np.arange(BITS_BYTES)]
    marks = np.zeros((len(rows), (1 << 16) + 2), dtype=np.int8)
    marks[:, 1:-1] = np.unpackbits(rows, axis=1, bitorder="little")
    steps = np.diff(marks, axis=1)
    which, first = np.nonzero(steps == 1)
    last = np.nonzero(steps == -1)[1] - 1
    base = bits.base[which]
    return bits.owner[which], base + first.astype(np.uint64), base + last.astype(np.uint64)


def _spread(counts: Longs) -> tuple[Longs, Longs]:
    """Number the parts of each of several wholes: which whole, and which part of it."""
    which = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
    return which, np.arange(len(which), dtype=np.int64) - np.repeat(np.cumsum(counts) - counts, counts)


def _number(data: Bytes, at: Longs, width: int) -> Longs:
    """Read little-endian numbers, wherever they lie."""
    if len(at) and (int(at.min()) < 0 or int(at.max()) + width > len(data)):
        raise CorruptError("a bitmap ends before it should", kind="bad_bitmap")
    number = data[at].astype(np.int64)
    for byte in range(1, width):
        number |= data[at + byte].astype(np.int64) << (8 * byte)
    return number
