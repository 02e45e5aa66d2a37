"""Walk the CBOR values of a whole dynamic column: which paths it has, and what is at one of them.

``PathTable`` describes a column block by block, for pruning; ``extract`` gives one path as a typed Arrow array. Both
are the loops behind ``dynamic.paths_of`` and ``dynamic.get_path`` and are tested against them. Bytes are not trusted:
every length is checked against the end of its value, and a value in a form we never write (indefinite lengths, keys
that are not text, nesting or paths beyond the limits below) makes the description incomplete, never wrong. The loops
are in ``cbor_loops``, and bring a compiler when a value is first looked into. It does not encode values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import cbor2
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.dynamic.values import MISSING, decode, get_path, real_text
from tidelake.errors import CorruptError
from tidelake.kernels.bloom import Grams
from tidelake.model.schema import DataType
from tidelake.runtime.deferred import deferred
from tidelake.runtime.readiness import has_loops

if TYPE_CHECKING:
    from tidelake.dynamic import plain_cbor
    from tidelake.kernels import plain_loops, text_loops
    from tidelake.kernels.text_loops import Hashes
else:
    text_loops, plain_loops = deferred("tidelake.kernels.text_loops"), deferred("tidelake.kernels.plain_loops")
    plain_cbor = deferred("tidelake.dynamic.plain_cbor")
cbor_loops: Any = deferred("tidelake.dynamic.cbor_loops")

MAX_WALK_DEPTH = 64
MAX_PATH_BYTES = 1024
MAX_FIND_MAPS = 1024  # maps waiting to be looked into for one path
BLOCK_LEAF_CAP = 200_000  # distinct leaves of a block: past this a filter would say yes to everything
PLAIN_BYTES = 8 << 20  # of values that are looked into without loops: of more, one is compiled sooner
PATH_TABLE_CAP = 1 << 16  # distinct paths of a block before the walk gives up

MISSING_KIND, NULL_KIND, FALSE_KIND, TRUE_KIND, INT_KIND, REAL_KIND, TEXT_KIND, OTHER_KIND = range(8)

BIG_HEADS = (0x1B, 0x3B, 0xC2, 0xC3)  # what CBOR begins an integer with that is beyond 63 bits

_PATH_SLOT = np.dtype(
    [("hash", np.uint64), ("start", np.int64), ("length", np.int64), ("low", np.float64), ("high", np.float64),
     ("numbers", np.int64), ("nan", np.int64), ("texts", np.int64), ("first", np.int64), ("last", np.int64),
     ("state", np.uint64), ("word", np.uint64), ("shift", np.uint64), ("next", np.int64)]
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class BlockPaths:
    """What one block of a dynamic column has: paths, number ranges, what texts begin with, and hashes of its leaves."""

    paths: tuple[str, ...]
    ranges: dict[str, tuple[float, float]]
    initials: dict[str, tuple[int, int]]
    leaves: Hashes | None
    terms: Hashes | None
    grams: Grams | None


class PathTable:
    """Describe the values of one dynamic column, block by block."""

    def __init__(self) -> None:
        self._tokens = text_loops.TokenTable(cap=0)  # texts of leaves are searched by filter only
        self._sizes = [1 << 10, 1 << 16, 1 << 12, 1 << 12]  # of the tables below; blocks are alike, so they are kept

    def add(self, values: pa.Array) -> BlockPaths | None:
        """Walk one block's values, without nulls; None when one has a form we never write."""
        if not has_loops():
            try:
                if (found := plain_cbor.describe(values.to_pylist())) is not None:
                    return self._of_plain(found)
            except (plain_cbor.BadForm, UnicodeDecodeError):
                return None
        data, offsets = _buffers(values)
        for table, per_row in ((2, 4), (3, 1)):  # as many as rows often need: to walk again costs more than room
            while self._sizes[table] > 1 and self._sizes[table] < min(per_row * len(values), BLOCK_LEAF_CAP):
                self._sizes[table] *= 4
        while True:
            slots, arena, leaves, texts = self._sizes
            path_slots = np.zeros(slots, dtype=_PATH_SLOT)
            path_letters = np.empty(arena, dtype=np.uint8)
            leaf_slots = np.zeros(leaves, dtype=np.uint64)
            text_starts, text_lengths = np.empty(texts, dtype=np.int64), np.empty(texts, dtype=np.int64)
            counts = np.zeros(4, dtype=np.int64)
            full = cbor_loops.walk(
                data, offsets, path_slots, path_letters, leaf_slots, text_starts, text_lengths, counts
            )
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

    def _of_plain(self, found: plain_cbor.Described) -> BlockPaths:
        names = {path: path.decode("utf-8", "surrogatepass") for path in found.paths}
        nan = float("nan")

        def by_name(item: tuple[bytes, Any]) -> str:
            return names[item[0]]

        ranges = {
            names[path]: (low if low <= high else nan, nan if has_nan else high)
            for path, (low, high, has_nan) in sorted(found.numbers.items(), key=by_name)
        }
        initials = {names[path]: bounds for path, bounds in sorted(found.initials.items(), key=by_name)}
        leaves = plain_loops.hashes_of(pa.array(found.leaves, pa.binary()))
        tokens = self._tokens.add(pa.array(found.texts, pa.binary()))
        terms, grams = tokens or (None, None)
        kept = np.where(leaves == 0, np.uint64(1), leaves)
        return BlockPaths(tuple(sorted(names.values())), ranges, initials, kept, terms, grams)

    def _described(
        self, data: Any, slots: Any, letters: Any, leaf_slots: Any, starts: Any, lengths: Any, counts: Any
    ) -> BlockPaths:
        held = slots[slots["length"] > 0]
        raw = letters.tobytes()
        names = [
            raw[start : start + length].decode("utf-8", "surrogatepass")
            for start, length in zip(held["start"].tolist(), held["length"].tolist(), strict=True)
        ]
        order = sorted(range(len(names)), key=names.__getitem__)  # what is written depends on values alone
        names, held = [names[at] for at in order], held[order]
        columns = (held[name].tolist() for name in ("numbers", "low", "high", "nan"))
        ranges = {
            name: (low if numbers > nans else float("nan"), float("nan") if nans else high)
            for name, numbers, low, high, nans in zip(names, *columns, strict=True)
            if numbers
        }
        columns = (held[name].tolist() for name in ("texts", "first", "last"))
        initials = {name: (low, high) for name, texts, low, high in zip(names, *columns, strict=True) if texts}
        if len(leaf_slots) == 1:
            return BlockPaths(tuple(sorted(names)), ranges, initials, None, None, None)
        found = self._tokens.add(_gathered(data, starts[: counts[3]], lengths[: counts[3]]))
        leaves = leaf_slots[leaf_slots != 0]
        terms, grams = found or (None, None)
        return BlockPaths(tuple(sorted(names)), ranges, initials, leaves, terms, grams)


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
        """Return the values that are of a type, or equal to one that is; the others are null."""
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
                return self.as_strings()
            case _:
                raise TypeError(f"a path is not read as {kind}")

    def as_strings(self) -> pa.Array:
        """Return the texts; the others are null."""
        return _gathered(self.data, self.starts, self.lengths, mask=self.kinds != TEXT_KIND)

    def as_bytes(self) -> pa.Array:
        """Return the CBOR of what Arrow has no type for: lists, maps, bytes, times, large integers."""
        return _gathered(self.data, self.starts, self.lengths, mask=self.kinds != OTHER_KIND, kind=pa.binary())

    def as_column(self, kind: DataType) -> pa.Array:
        """Return the values that a column of a type takes, as coercion has it; the others are null.

        Beside those that are of the type, numbers and booleans as text, and integers of any size that a double holds.
        """
        found = self.as_type(kind)
        if kind.kind == "string" and ((self.kinds != TEXT_KIND) & (self.kinds > NULL_KIND)).any():
            return pc.coalesce(found, self._plain_texts())
        if kind.kind == "real" and (bigs := self.big_ints()):
            reals = np.full(len(self.kinds), None, dtype=object)
            for row, number in bigs.items():
                reals[row] = float(number) if abs(number) < 2**1023 and int(float(number)) == number else None
            return pc.coalesce(found, pa.array(reals, pa.float64()))
        return found

    def _plain_texts(self) -> pa.Array:
        """Return numbers and booleans as JSON writes them."""
        flags = pa.array(self.kinds == TRUE_KIND, mask=(self.kinds != TRUE_KIND) & (self.kinds != FALSE_KIND))
        ints = pa.array(self.ints, mask=self.kinds != INT_KIND)
        is_real = self.kinds == REAL_KIND
        rare = np.full(len(self.kinds), None, dtype=object)
        rare[is_real] = [real_text(real) for real in self.reals[is_real].tolist()]
        for row, number in self.big_ints().items():
            rare[row] = str(number)
        return pc.coalesce(flags.cast(pa.utf8()), ints.cast(pa.utf8()), pa.array(rare, pa.utf8()))

    def big_ints(self) -> dict[int, int]:
        """Return the integers beyond 64 bits, which are rare, by row."""
        rows = np.flatnonzero((self.kinds == OTHER_KIND) & (self.lengths > 0))
        rows = rows[np.isin(self.data[self.starts[rows]], BIG_HEADS)] if len(rows) else rows
        held = {row: self.data[self.starts[row] :][: self.lengths[row]].tobytes() for row in rows.tolist()}
        return {row: number for row, value in held.items() if type(number := decode(value)) is int}


def extract(values: pa.Array, path: str) -> Extracted:
    """Find one path in every row of a dynamic column; nulls are missing."""
    return _extract_slowly(values, path) if "[" in path or not path else _extract(values, path)


def whole(values: pa.Array) -> Extracted:
    """Return what each value of a dynamic column is itself; nulls are missing."""
    return _extract(values, "")


def _extract(values: pa.Array, path: str) -> Extracted:
    """Find a path, of which an empty one stands for each value itself."""
    data, offsets = _buffers(values)
    if not has_loops() and (held := decoded(values)) is not None:
        return found_in(held, path or None)
    out = _room(len(values), data)
    cbor_loops.extract(
        data, offsets, np.frombuffer(path.encode("utf-8", "surrogatepass"), dtype=np.uint8), *_arrays(out)
    )
    if values.null_count:
        out.kinds[np.asarray(values.is_null())] = MISSING_KIND
    return out


def slices(values: pa.Array, path: str) -> pa.Array:
    """Return what each row has at a path as a dynamic column of its own; JSON's null there is a value."""
    if "[" in path:
        return _slices_slowly(values, path)
    if not has_loops() and decoded(values) is not None:
        return _slices_slowly(values, path)
    data, offsets = _buffers(values)
    starts, lengths = np.zeros(len(values), dtype=np.int64), np.full(len(values), -1, dtype=np.int64)
    cbor_loops.locate(data, offsets, np.frombuffer(path.encode("utf-8", "surrogatepass"), np.uint8), starts, lengths)
    missing = (lengths < 0) | values.is_null().to_numpy(zero_copy_only=False)
    return _gathered(data, starts, np.maximum(lengths, 0), mask=missing, kind=pa.binary())


def _slices_slowly(values: pa.Array, path: str) -> pa.Array:
    from tidelake.dynamic.values import encode

    def cut(value: bytes | None) -> bytes | None:
        found = MISSING if value is None else get_path(decode(value), path)
        return None if found is MISSING else encode(found)

    return pa.array([cut(value) for value in values.to_pylist()], pa.binary())


def decoded(values: pa.Array) -> list[Any] | None:
    """Decode values with plain Python, nulls as what is missing; None if one is not canonical, or they are many."""
    if values.nbytes > PLAIN_BYTES:
        return None
    found = []
    for stored in values.to_pylist():
        try:
            value = MISSING if stored is None else decode(stored)
            if stored is not None and cbor2.dumps(value, canonical=True) != stored:
                return None
        except (CorruptError, cbor2.CBOREncodeError, TypeError, ValueError, RecursionError):
            return None
        found.append(value)
    return found


def _extract_slowly(values: pa.Array, path: str) -> Extracted:
    """Follow a path that steps into lists, row by row: rare enough for plain Python."""
    return found_in([MISSING if value is None else decode(value) for value in values.to_pylist()], path)


def found_in(values: Sequence[Any], path: str | None) -> Extracted:
    """Find a path in values, or with none what each is itself."""
    kept = bytearray()
    out = _room(len(values), np.empty(0, dtype=np.uint8))
    for row, value in enumerate(values):
        found = value if value is MISSING or path is None else get_path(value, path)
        if found is MISSING:
            continue
        kind = _kind_of(found)
        out.kinds[row] = kind
        if kind in (INT_KIND, REAL_KIND):
            out.ints[row], out.reals[row] = (found if kind == INT_KIND else 0), float(found)
        elif kind in (TEXT_KIND, OTHER_KIND):
            held = found.encode("utf-8", "surrogatepass") if kind == TEXT_KIND else cbor2.dumps(found, canonical=True)
            out.starts[row], out.lengths[row] = len(kept), len(held)
            kept += held
    return Extracted(
        out.kinds, out.ints, out.reals, out.starts, out.lengths, np.frombuffer(bytes(kept), dtype=np.uint8)
    )


def _kind_of(value: Any) -> int:
    if value is cbor2.undefined:
        return NULL_KIND
    match value:
        case None | cbor2.CBORSimpleValue():
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


def _gathered(data: Any, starts: Any, lengths: Any, mask: Any = None, kind: pa.DataType | None = None) -> pa.Array:
    """Copy texts, or other bytes, that lie here and there into one array; masked rows are null."""
    if mask is not None:
        lengths = np.where(mask, 0, lengths)
    offsets = np.zeros(len(starts) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    out = np.empty(int(offsets[-1]), dtype=np.uint8)
    cbor_loops.copy(data, starts, lengths, offsets, out)
    nulls = None if mask is None else pa.py_buffer(np.packbits(~mask, bitorder="little"))
    buffers = [nulls, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(out)]
    return pa.Array.from_buffers(kind or pa.utf8(), len(starts), buffers, 0 if mask is None else int(mask.sum()))


def _buffers(values: pa.Array) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32]]:
    _, offsets, data = values.buffers()
    places = np.frombuffer(offsets, dtype=np.int32) if offsets else np.zeros(1, dtype=np.int32)
    window = places[values.offset : values.offset + len(values) + 1]
    return (np.frombuffer(data, dtype=np.uint8) if data else np.zeros(0, dtype=np.uint8)), window
