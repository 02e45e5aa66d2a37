"""Walk the CBOR values of a whole dynamic column, compiled: which paths it has, and what is at one of them.

``PathTable`` describes a column block by block, for pruning; ``extract`` gives one path as a typed Arrow array. Both
are the loops behind ``dynamic.paths_of`` and ``dynamic.get_path`` and are tested against them. Bytes are not trusted:
every length is checked against the end of its value, and a value in a form we never write (indefinite lengths, keys
that are not text, nesting or paths beyond the limits below) makes the description incomplete, never wrong. It does not
encode values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelake.dynamic import MISSING, decode, get_path
from tidelake.filters import SEED, Grams
from tidelake.kernels import Hashes, TokenTable, compiled, finished, stirred
from tidelake.schema import DataType
from tidelake.stats import LEAF_TEXT_CAP

MAX_WALK_DEPTH = 64
MAX_PATH_BYTES = 1024
MAX_FIND_MAPS = 1024  # maps waiting to be looked into for one path
BLOCK_LEAF_CAP = 200_000  # distinct leaves of a block: past this a filter would say yes to everything
PATH_TABLE_CAP = 1 << 16  # distinct paths of a block before the walk gives up

MISSING_KIND, NULL_KIND, FALSE_KIND, TRUE_KIND, INT_KIND, REAL_KIND, TEXT_KIND, OTHER_KIND = range(8)

_U = np.uint64
_SEED = _U(SEED)
_PATH_SLOT = np.dtype(
    [("hash", np.uint64), ("start", np.int64), ("length", np.int64), ("low", np.float64), ("high", np.float64),
     ("numbers", np.int64), ("nan", np.int64)]
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class BlockPaths:
    """What one block of a dynamic column has: paths, number ranges, and hashes of its leaves and leaf tokens."""

    paths: tuple[str, ...]
    ranges: dict[str, tuple[float, float]]
    leaves: Hashes | None
    terms: Hashes | None
    grams: Grams | None


class PathTable:
    """Describe the values of one dynamic column, block by block."""

    def __init__(self) -> None:
        self._tokens = TokenTable(cap=0)  # texts of leaves are searched by filter only
        self._sizes = [1 << 10, 1 << 16, 1 << 12, 1 << 12]  # of the tables below; blocks are alike, so they are kept

    def add(self, values: pa.Array) -> BlockPaths | None:
        """Walk one block's values, without nulls; None when one has a form we never write."""
        data, offsets = _buffers(values)
        while True:
            slots, arena, leaves, texts = self._sizes
            path_slots = np.zeros(slots, dtype=_PATH_SLOT)
            path_letters = np.empty(arena, dtype=np.uint8)
            leaf_slots = np.zeros(leaves, dtype=np.uint64)
            text_starts, text_lengths = np.empty(texts, dtype=np.int64), np.empty(texts, dtype=np.int64)
            counts = np.zeros(4, dtype=np.int64)
            full = _walk(data, offsets, path_slots, path_letters, leaf_slots, text_starts, text_lengths, counts)
            if full == 0:
                break
            if full < 0 or counts[0] > PATH_TABLE_CAP:
                return None
            self._sizes[full - 1] *= 4  # that table was too small: walk again
            if self._sizes[2] > BLOCK_LEAF_CAP * 8:
                self._sizes[2] = 1  # give up on leaves, not on paths
        try:
            return self._described(data, path_slots, path_letters, leaf_slots, text_starts, text_lengths, counts)
        except UnicodeDecodeError:  # a key that is not text
            return None

    def _described(
        self, data: Any, slots: Any, letters: Any, leaf_slots: Any, starts: Any, lengths: Any, counts: Any
    ) -> BlockPaths:
        held = slots[slots["length"] > 0]
        raw = letters.tobytes()
        names = [
            raw[start : start + length].decode("utf-8", "surrogatepass")
            for start, length in zip(held["start"].tolist(), held["length"].tolist(), strict=True)
        ]
        columns = (held[name].tolist() for name in ("numbers", "low", "high", "nan"))
        ranges = {
            name: (low if numbers > nans else float("nan"), float("nan") if nans else high)
            for name, numbers, low, high, nans in zip(names, *columns, strict=True)
            if numbers
        }
        if len(leaf_slots) == 1:
            return BlockPaths(tuple(sorted(names)), ranges, None, None, None)
        found = self._tokens.add(_gathered(data, starts[: counts[3]], lengths[: counts[3]]))
        leaves = leaf_slots[leaf_slots != 0]
        terms, grams = found or (None, None)
        return BlockPaths(tuple(sorted(names)), ranges, leaves, terms, grams)


@dataclass(frozen=True, slots=True)
class Extracted:
    """What each row has at one path: its kind, and the value in the field that suits the kind."""

    kinds: npt.NDArray[np.uint8]
    ints: npt.NDArray[np.int64]
    reals: npt.NDArray[np.float64]
    starts: npt.NDArray[np.int64]  # of the text, or of the whole value when the kind is another
    lengths: npt.NDArray[np.int64]
    data: npt.NDArray[np.uint8]

    def is_present(self) -> npt.NDArray[np.bool_]:
        return np.asarray(self.kinds != MISSING_KIND)

    def as_type(self, kind: DataType) -> pa.Array:
        """Give the values that fit a type exactly; the others are null."""
        match kind.kind:
            case "int" | "long":
                whole = (
                    (self.kinds == REAL_KIND) & (np.abs(self.reals) < 2.0**63) & (self.reals == np.floor(self.reals))
                )
                ints = np.where(whole, np.where(whole, self.reals, 0).astype(np.int64), self.ints)
                fits = (self.kinds == INT_KIND) | whole
                if kind.kind == "int":
                    fits &= (ints >= -(2**31)) & (ints < 2**31)
                return pa.array(np.where(fits, ints, 0), pa.int64(), mask=~fits).cast(kind.arrow)
            case "real":
                inside = (self.kinds == INT_KIND) & (self.reals < 2.0**63)
                is_exact = inside & (np.where(inside, self.reals, 0).astype(np.int64) == self.ints)
                return pa.array(self.reals, pa.float64(), mask=~(is_exact | (self.kinds == REAL_KIND)))
            case "bool":
                fits = (self.kinds == TRUE_KIND) | (self.kinds == FALSE_KIND)
                return pa.array(self.kinds == TRUE_KIND, pa.bool_(), mask=~fits)
            case "string":
                return _gathered(self.data, self.starts, self.lengths, mask=self.kinds != TEXT_KIND)
            case _:
                raise TypeError(f"a path is not read as {kind}")


def extract(values: pa.Array, path: str) -> Extracted:
    """Find one path in every row of a dynamic column; nulls are missing."""
    if "[" in path:
        return _extract_slowly(values, path)
    data, offsets = _buffers(values)
    out = _room(len(values), data)
    _extract(data, offsets, np.frombuffer(path.encode("utf-8", "surrogatepass"), dtype=np.uint8), *_arrays(out))
    if values.null_count:
        out.kinds[np.asarray(values.is_null())] = MISSING_KIND
    return out


def slices(values: pa.Array, path: str) -> pa.Array:
    """Give what each row has at a path as a dynamic column of its own."""
    from tidelake.dynamic import encode

    def cut(value: bytes | None) -> bytes | None:
        found = MISSING if value is None else get_path(decode(value), path)
        return None if found is MISSING else encode(found)

    return pa.array([cut(value) for value in values.to_pylist()], pa.binary())


def _extract_slowly(values: pa.Array, path: str) -> Extracted:
    """Follow a path that steps into lists, row by row: rare enough for plain Python."""
    texts = bytearray()
    out = _room(len(values), np.empty(0, dtype=np.uint8))
    for row, value in enumerate(values.to_pylist()):
        found = MISSING if value is None else get_path(decode(value), path)
        if found is MISSING:
            continue
        kind = _kind_of(found)
        out.kinds[row] = kind
        if kind in (INT_KIND, REAL_KIND):
            out.ints[row], out.reals[row] = (found if kind == INT_KIND else 0), float(found)
        elif kind == TEXT_KIND:
            text = found.encode("utf-8", "surrogatepass")
            out.starts[row], out.lengths[row] = len(texts), len(text)
            texts += text
    return Extracted(
        out.kinds, out.ints, out.reals, out.starts, out.lengths, np.frombuffer(bytes(texts), dtype=np.uint8)
    )


def _kind_of(value: Any) -> int:
    match value:
        case None:
            return NULL_KIND
        case bool():
            return TRUE_KIND if value else FALSE_KIND
        case int():
            return INT_KIND if -(2**63) <= value < 2**63 else OTHER_KIND
        case float():
            return REAL_KIND
        case str():
            return TEXT_KIND
        case _:
            return OTHER_KIND


def _room(rows: int, data: npt.NDArray[np.uint8]) -> Extracted:
    return Extracted(
        np.zeros(rows, dtype=np.uint8),
        np.zeros(rows, dtype=np.int64),
        np.zeros(rows, dtype=np.float64),
        np.zeros(rows, dtype=np.int64),
        np.zeros(rows, dtype=np.int64),
        data,
    )


def _arrays(out: Extracted) -> tuple[Any, ...]:
    return out.kinds, out.ints, out.reals, out.starts, out.lengths


def _gathered(data: Any, starts: Any, lengths: Any, mask: Any = None) -> pa.Array:
    """Copy texts that lie here and there into one string array; masked rows are null."""
    if mask is not None:
        lengths = np.where(mask, 0, lengths)
    offsets = np.zeros(len(starts) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    out = np.empty(int(offsets[-1]), dtype=np.uint8)
    _copy(data, starts, lengths, offsets, out)
    nulls = None if mask is None else pa.py_buffer(np.packbits(~mask, bitorder="little"))
    buffers = [nulls, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(out)]
    return pa.Array.from_buffers(pa.utf8(), len(starts), buffers, 0 if mask is None else int(mask.sum()))


def _buffers(values: pa.Array) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32]]:
    _, offsets, data = values.buffers()
    places = np.frombuffer(offsets, dtype=np.int32) if offsets else np.zeros(1, dtype=np.int32)
    window = places[values.offset : values.offset + len(values) + 1]
    return (np.frombuffer(data, dtype=np.uint8) if data else np.zeros(0, dtype=np.uint8)), window


@compiled
def _copy(data: Any, starts: Any, lengths: Any, offsets: Any, out: Any) -> None:
    for row in range(len(starts)):
        at = offsets[row]
        for i in range(lengths[row]):
            out[at + i] = data[starts[row] + i]


@compiled
def _head(data: Any, at: Any, end: Any) -> Any:
    """Read one item's head: its major type, argument, and the place after it; a major of -1 is malformed."""
    if at >= end:
        return -1, _U(0), at
    first = data[at]
    major, info = np.int64(first >> 5), np.int64(first & 31)
    at += 1
    if info < 24:
        return major, _U(info), at
    if info > 27:
        return -1, _U(0), at
    size = np.int64(1) << (info - 24)
    if at + size > end:
        return -1, _U(0), at
    argument = _U(0)
    for i in range(size):
        argument = (argument << _U(8)) | _U(data[at + i])
    return major, argument, at + size


@compiled
def _skip(data: Any, at: Any, end: Any) -> Any:
    """Give the place after one item, or -1 when it is malformed."""
    left = np.int64(1)
    while left > 0:
        left -= 1
        start = at
        major, argument, at = _head(data, at, end)
        if major < 0:
            return np.int64(-1)
        if major == 2 or major == 3:
            if argument > _U(end - at):
                return np.int64(-1)
            at += np.int64(argument)
        elif major == 4 or major == 5:
            if argument > _U(end - start):
                return np.int64(-1)
            left += np.int64(argument) * (1 if major == 4 else 2)
        elif major == 6:
            left += 1
    return at


@compiled
def _real(info: Any, argument: Any) -> Any:
    """Turn the bits of a half, single or double into a double."""
    if info == 25:
        exponent = np.int64((argument >> _U(10)) & _U(31))
        fraction = np.float64(argument & _U(1023))
        if exponent == 0:
            value = fraction * 2.0**-24
        elif exponent == 31:
            value = np.float64(np.inf if fraction == 0 else np.nan)
        else:
            value = (fraction + 1024.0) * 2.0 ** (exponent - 25)
        return -value if argument >> _U(15) else value
    if info == 26:
        return np.float64(np.uint32(argument).view(np.float32))
    return np.uint64(argument).view(np.float64)


@compiled
def _hash_leaf(path: Any, path_length: Any, tag: Any, data: Any, at: Any, length: Any, number: Any) -> Any:
    """Hash a path, a zero, a tag, then text or the eight bytes of a number, laid out as in ``stats.leaf_bytes``."""
    hash, word, shift, total = _SEED, _U(0), _U(0), path_length + 2 + length
    for i in range(total):
        if i < path_length:
            byte = path[i]
        elif i == path_length:
            byte = np.uint8(0)
        elif i == path_length + 1:
            byte = np.uint8(tag)
        elif tag == 115:  # "s"
            byte = data[at + i - path_length - 2]
        else:
            byte = np.uint8((number >> _U(8 * (i - path_length - 2))) & _U(255))
        word |= _U(byte) << shift
        shift += _U(8)
        if shift == _U(64):
            hash = stirred(hash, word)
            word, shift = _U(0), _U(0)
    if shift:
        hash = stirred(hash, word)
    return finished(hash ^ _U(total))


@compiled
def _hash_path(path: Any, length: Any) -> Any:
    hash, word, shift = _SEED, _U(0), _U(0)
    for i in range(length):
        word |= _U(path[i]) << shift
        shift += _U(8)
        if shift == _U(64):
            hash = stirred(hash, word)
            word, shift = _U(0), _U(0)
    if shift:
        hash = stirred(hash, word)
    return finished(hash ^ _U(length))


@compiled
def _remember(leaves: Any, hash: Any, counts: Any) -> Any:
    """Keep a hash: 0 if it was there, 1 if it is new, 2 if there is no room. A table of one slot keeps nothing."""
    if len(leaves) == 1:
        return 0
    if hash == _U(0):
        hash = _U(1)
    mask = _U(len(leaves) - 1)
    slot = hash & mask
    while leaves[slot] != _U(0):
        if leaves[slot] == hash:
            return 0
        slot = (slot + _U(1)) & mask
    if counts[2] * 2 >= len(leaves):
        return 2
    leaves[slot] = hash
    counts[2] += 1
    return 1


@compiled
def _walk(
    data: Any, offsets: Any, slots: Any, letters: Any, leaves: Any, text_starts: Any, text_lengths: Any, counts: Any
) -> Any:
    """Describe every row; 0 when done, -1 for a form we never write, else which table was too small.

    ``counts``: paths, letters, leaves, texts.
    """
    path = np.empty(MAX_PATH_BYTES, dtype=np.uint8)
    left = np.empty(MAX_WALK_DEPTH, dtype=np.int64)
    is_map = np.empty(MAX_WALK_DEPTH, dtype=np.bool_)
    in_list = np.empty(MAX_WALK_DEPTH, dtype=np.bool_)
    lengths = np.empty(MAX_WALK_DEPTH, dtype=np.int64)
    mask = _U(len(slots) - 1)
    for row in range(len(offsets) - 1):
        at, end = np.int64(offsets[row]), np.int64(offsets[row + 1])
        depth = 0
        left[0], is_map[0], in_list[0], lengths[0] = 1, False, False, 0
        while depth >= 0:
            if left[depth] == 0:
                depth -= 1
                continue
            left[depth] -= 1
            here, listed, slot = lengths[depth], in_list[depth], _U(0)
            has_path = False
            if is_map[depth]:
                major, argument, at = _head(data, at, end)
                if major != 3 or argument > _U(end - at):
                    return -1
                size = np.int64(argument)
                if not listed:
                    if here + size + 1 > MAX_PATH_BYTES:
                        return -1
                    if here:
                        path[here] = 46
                        here += 1
                    for i in range(size):
                        path[here + i] = data[at + i]
                    here += size
                at += size
                if not listed:
                    if here == 0:
                        return -1
                    has_path = True
                    hash = _hash_path(path, here)
                    slot = hash & mask
                    while slots[slot].length != 0:
                        if slots[slot].hash == hash and slots[slot].length == here:
                            same = True
                            for i in range(here):
                                if letters[slots[slot].start + i] != path[i]:
                                    same = False
                                    break
                            if same:
                                break
                        slot = (slot + _U(1)) & mask
                    if slots[slot].length == 0:
                        if counts[0] * 2 >= len(slots):
                            return 1
                        if counts[1] + here > len(letters):
                            return 2
                        slots[slot].hash, slots[slot].start, slots[slot].length = hash, counts[1], here
                        for i in range(here):
                            letters[counts[1] + i] = path[i]
                        counts[0] += 1
                        counts[1] += here
                        if _remember(leaves, hash, counts) == 2:
                            return 3
            begin = at
            major, argument, at = _head(data, at, end)
            tagged = False
            while major == 6:
                tagged = True
                begin = at
                major, argument, at = _head(data, at, end)
            if major < 0:
                return -1
            if major == 4 or major == 5:
                if argument > _U(end - at) or depth + 1 == MAX_WALK_DEPTH:
                    return -1
                depth += 1
                left[depth], is_map[depth], lengths[depth] = np.int64(argument), major == 5, here
                in_list[depth] = listed or major == 4
                continue
            if major == 2 or major == 3:
                if argument > _U(end - at):
                    return -1
                size = np.int64(argument)
                if major == 3 and not tagged:
                    fresh = 1
                    if has_path:
                        fresh = _remember(
                            leaves, _hash_leaf(path, here, 115, data, at, min(size, LEAF_TEXT_CAP), _U(0)), counts
                        )
                        if size > LEAF_TEXT_CAP:  # its beginning may be known, its end is not
                            fresh = max(fresh, 1)
                    if fresh == 2:
                        return 3
                    if fresh == 1 and len(leaves) > 1:
                        if counts[3] == len(text_starts):
                            return 4
                        text_starts[counts[3]], text_lengths[counts[3]] = at, size
                        counts[3] += 1
                at += size
                if tagged and has_path:  # a number too large for 64 bits, or a time: no bound holds
                    slots[slot].numbers += 1
                    slots[slot].low, slots[slot].high = -np.inf, np.inf
                    if _remember(leaves, _hash_leaf(path, here, 98, data, at, 0, _U(0)), counts) == 2:
                        return 3
                continue
            info = np.int64(data[begin] & 31)
            if major == 7 and info < 25:  # false, true, null and other simple values
                if has_path and (info == 20 or info == 21):
                    leaf = _hash_leaf(path, here, 102 if info == 20 else 116, data, at, 0, _U(0))
                    if _remember(leaves, leaf, counts) == 2:
                        return 3
                continue
            if not has_path:
                continue
            # a number
            whole, bits, low = True, argument, 0.0
            if major == 7:
                low = _real(info, argument)
                whole = np.abs(low) < 2.0**63 and low == np.floor(low)
                bits = _U(np.int64(low)) if whole else np.float64(low).view(np.uint64)
                if np.isnan(low):
                    bits = _U(0x7FF8_0000_0000_0000)
            elif major == 1:
                bits = ~argument
            huge = (major < 2 and argument >> _U(63) != _U(0)) or (
                major == 7 and not np.isnan(low) and not np.isinf(low) and np.abs(low) >= 2.0**63
            )
            high = low
            if major < 2:
                low = np.float64(argument) if major == 0 else -1.0 - np.float64(argument)
                slack = np.abs(low) * 2.0**-52 if np.abs(low) >= 2.0**53 else 0.0
                high = low + slack
                low = low - slack
            tag, width = (98, 0) if huge else (105, 8) if whole else (100, 8)
            if _remember(leaves, _hash_leaf(path, here, tag, data, at, width, bits), counts) == 2:
                return 3
            if np.isnan(low):
                slots[slot].nan += 1
                if slots[slot].numbers == slots[slot].nan - 1:
                    slots[slot].low, slots[slot].high = np.inf, -np.inf
            elif slots[slot].numbers == 0:
                slots[slot].low, slots[slot].high = low, high
            else:
                slots[slot].low = min(slots[slot].low, low)
                slots[slot].high = max(slots[slot].high, high)
            slots[slot].numbers += 1
        if at != end:
            return -1
    return 0


@compiled
def _find(data: Any, start: Any, end: Any, path: Any, maps: Any, steps: Any) -> Any:
    """Find the place of what a value has at a path, the longest key first; -1 if nothing is there.

    ``maps`` and ``steps`` are room for the maps still to look into, the next one last, and how much of the path led
    to each. A path has at most one such map for each of its dots in each map on the way, and those are few.
    """
    maps[0], steps[0] = start, 0
    waiting = 1
    while waiting > 0:
        waiting -= 1
        at, taken = maps[waiting], steps[waiting]
        wanted = len(path) - taken
        floor = waiting
        major, argument, at = _head(data, at, end)
        if major != 5:
            continue
        for _ in range(np.int64(argument)):
            major, argument, at = _head(data, at, end)
            if major != 3 or argument > _U(end - at):
                return np.int64(-1)
            size = np.int64(argument)
            fits = size <= wanted and (size == wanted or path[taken + size] == 46)
            if fits:
                for i in range(size):
                    if data[at + i] != path[taken + i]:
                        fits = False
                        break
            at += size
            if fits and size == wanted:
                return at
            if fits and waiting < len(maps):
                place = waiting  # keep this map's candidates in order of their keys' length, the longest last
                while place > floor and steps[place - 1] > taken + size + 1:
                    maps[place], steps[place] = maps[place - 1], steps[place - 1]
                    place -= 1
                maps[place], steps[place] = at, taken + size + 1
                waiting += 1
            at = _skip(data, at, end)
            if at < 0:
                return np.int64(-1)
    return np.int64(-1)


@compiled
def _extract(data: Any, offsets: Any, path: Any, kinds: Any, ints: Any, reals: Any, starts: Any, lengths: Any) -> None:
    maps, steps = np.empty(MAX_FIND_MAPS, dtype=np.int64), np.empty(MAX_FIND_MAPS, dtype=np.int64)
    for row in range(len(offsets) - 1):
        at, end = np.int64(offsets[row]), np.int64(offsets[row + 1])
        at = _find(data, at, end, path, maps, steps)
        if at < 0:
            continue
        begin = at
        major, argument, at = _head(data, at, end)
        if major < 0:
            continue
        info = np.int64(data[begin] & 31)
        if major < 2 and argument >> _U(63) == _U(0):
            kinds[row] = INT_KIND
            ints[row] = np.int64(argument) if major == 0 else -1 - np.int64(argument)
            reals[row] = np.float64(ints[row])
        elif major == 3 and argument <= _U(end - at):
            kinds[row] = TEXT_KIND
            starts[row], lengths[row] = at, np.int64(argument)
        elif major == 7 and info >= 25:
            kinds[row] = REAL_KIND
            reals[row] = _real(info, argument)
        elif major == 7:
            kinds[row] = FALSE_KIND if info == 20 else TRUE_KIND if info == 21 else NULL_KIND
        else:
            kinds[row] = OTHER_KIND
            starts[row], lengths[row] = begin, max(_skip(data, begin, end), begin) - begin
