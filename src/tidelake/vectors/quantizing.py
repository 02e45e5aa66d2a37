"""Learn codebooks, code vectors and search coded ones: all that faiss does, and the only place that calls it.

faiss is imported when it is first used. It runs on the thread that calls it and on no other: no team of threads is left
behind that a forked child would wait for, and whoever wants several cores calls from several threads. It does not read
vectors, and does not rank by anything but codes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tidelake.errors import UnavailableError
from tidelake.runtime.deferred import deferred, is_installed
from tidelake.vectors.codebook import (
    CODES,
    Codebook,
    Effort,
    Mask,
    efforts,
    padded_width,
    part_width,
    prepare,
    reach_of,
)
from tidelake.vectors.definition import Floats, IndexMetric
from tidelake.vectors.sidecar import Sidecar

if TYPE_CHECKING:
    faiss: Any
else:
    faiss = deferred("faiss")

MIN_ROWS = 4_096  # vectors below which none are coded: looking at all of them takes a few milliseconds
SAMPLE_ROWS = 65_536  # that are looked at, or more where there are many lists
ROWS_A_LIST = 64  # of the sample, from which the centre of a list is learned
MAX_LISTS, MIN_LISTS = 4_096, 16
ROUNDS = 10  # of moving centres to the middle of what is theirs
CODED_AT_ONCE = 1 << 24  # components of vectors that are coded at once: 64 MiB
TRIED_QUERIES, TRIED_K = 256, 10  # of the sample, to find out how good a search is
REFINES = (1, 4)
GOOD_ENOUGH = 0.999  # found of the sample, above which no more effort is tried
SEED = 20_260_101  # a codebook that is learned twice from the same sample is the same


def is_available() -> bool:
    """Whether faiss is installed."""
    return is_installed("faiss")


def require() -> None:
    """Raise UnavailableError if vectors cannot be coded here."""
    if not is_available():
        raise UnavailableError("indexes of vectors need faiss: pip install 'tidelake[vectors]'", kind="no_faiss")


def lists_for(rows: int) -> int:
    """Return how many lists suit so many vectors: with the square root, lists and their centres cost about the same."""
    return max(MIN_LISTS, min(MAX_LISTS, round(math.sqrt(rows))))


def sample_rows(rows: int) -> int:
    """Return how many of so many vectors are looked at to learn from."""
    return min(rows, max(SAMPLE_ROWS, ROWS_A_LIST * lists_for(rows)))


def learn(sample: Floats, metric: IndexMetric, *, rows: int) -> Codebook | None:
    """Learn a codebook from some of so many vectors, and how thorough a search must be; None if they are too few."""
    require()
    faiss.omp_set_num_threads(1)
    dimensions, width = sample.shape[1], padded_width(sample.shape[1], metric)
    reach = reach_of(sample, metric)
    wide, odd = prepare(sample, metric, reach, width)
    wide = wide[~odd]
    if len(wide) < MIN_ROWS:
        return None
    order = np.random.default_rng(SEED).permutation(len(wide))
    wide, tried = wide[order], sample[~odd][order[:TRIED_QUERIES]]
    lists = min(lists_for(rows), len(wide) // ROWS_A_LIST)
    coder = _coder(width, lists, part_width(dimensions))
    coder.cp.niter, coder.cp.seed = ROUNDS, SEED
    coder.train(np.ascontiguousarray(wide[: ROWS_A_LIST * lists]))
    centres = coder.quantizer.reconstruct_n(0, lists)
    parts = faiss.vector_to_array(coder.pq.centroids).reshape(coder.pq.M, CODES, -1).copy()
    learned = Codebook(metric, dimensions, reach, centres, parts, rows)
    curve = _curve(learned, wide, learned.prepared_queries(tried))
    return Codebook(metric, dimensions, reach, centres, parts, rows, curve)


def code(codebook: Codebook, codebook_key: str, vectors: Floats, present: Mask, extent_id: str) -> Sidecar:
    """Code the vectors of an extent; ``present`` says which rows have one."""
    faiss.omp_set_num_threads(1)
    odd = np.zeros(len(present), np.bool_)
    lists, codes = np.empty(len(vectors), np.int64), np.empty((len(vectors), codebook.code_bytes), np.uint8)
    own = np.flatnonzero(present)
    coder = _Coder.of(codebook)
    step = max(1, CODED_AT_ONCE // codebook.centres.shape[1])
    for start in range(0, len(vectors), step):
        here = slice(start, start + step)
        wide, are_odd = codebook.prepared(vectors[here])
        odd[own[here][are_odd]] = True
        lists[here], codes[here] = coder.coded(wide)
    coded = np.flatnonzero(~odd[own])
    order = coded[np.argsort(lists[coded], kind="stable")]
    return Sidecar(
        extent_id,
        codebook_key,
        len(present),
        np.bincount(lists[coded], minlength=codebook.lists).astype(np.uint32),
        own[order].astype(np.uint32),
        codes[order],
        np.flatnonzero(odd).astype(np.uint32),
        np.flatnonzero(~present).astype(np.uint32),
    )


@dataclass(frozen=True, slots=True, eq=False)
class Shard:
    """The coded vectors of some extents, ready to be searched; a row is its extent's first number plus its position."""

    extents: tuple[str, ...]
    firsts: npt.NDArray[np.int64]  # number of each extent's first row, and of the row after the last
    coded: int
    byte_size: int
    odd: tuple[npt.NDArray[np.uint32], ...]  # of each extent, as its sidecar has them
    absent: tuple[npt.NDArray[np.uint32], ...]
    _index: Any = field(repr=False)
    _keep: tuple[Any, ...] = field(repr=False)  # what the index points to

    @classmethod
    def of(cls, codebook: Codebook, sidecars: Sequence[Sidecar]) -> Shard:
        """Bring the lists of some extents together."""
        faiss.omp_set_num_threads(1)
        firsts = np.cumsum([0, *(each.rows for each in sidecars)]).astype(np.int64)
        lists = np.concatenate([each.lists for each in sidecars])
        numbers = np.concatenate(
            [each.positions.astype(np.int64) + first for each, first in zip(sidecars, firsts[:-1], strict=True)]
        )
        order = np.argsort(lists, kind="stable")
        codes = np.concatenate([each.codes for each in sidecars])[order]
        index, keep = _filled(codebook, np.bincount(lists, minlength=codebook.lists), numbers[order], codes)
        size = len(numbers) * (codebook.code_bytes + 8) + codebook.byte_size
        return cls(
            tuple(each.extent_id for each in sidecars),
            firsts,
            len(numbers),
            size,
            tuple(each.odd for each in sidecars),
            tuple(each.absent for each in sidecars),
            index,
            keep,
        )

    def search(
        self, prepared: Floats, count: int, probes: int, allowed: Mask | None = None
    ) -> tuple[Floats, npt.NDArray[np.int64]]:
        """Return the rows that seem nearest to each query, and how far; -1 where there are no more.

        ``allowed`` says of each row's number whether it may be among them.
        """
        faiss.omp_set_num_threads(1)
        chosen: dict[str, Any] = {"nprobe": probes}
        bits = None
        if allowed is not None:
            bits = np.packbits(allowed, bitorder="little")
            chosen["sel"] = faiss.IDSelectorBitmap(len(allowed), faiss.swig_ptr(bits))
        found: tuple[Floats, npt.NDArray[np.int64]] = self._index.search(
            prepared, count, params=faiss.SearchParametersIVF(**chosen)
        )
        del bits  # not before the search has read it
        return found


@dataclass(frozen=True, slots=True)
class _Coder:
    """Finds the list and the code of prepared vectors."""

    centres: Floats
    flat: Any
    quantizer: Any

    @classmethod
    def of(cls, codebook: Codebook) -> _Coder:
        count, _, part = codebook.parts.shape
        quantizer = faiss.ProductQuantizer(count * part, count, 4)
        faiss.copy_array_to_vector(np.ascontiguousarray(codebook.parts).ravel(), quantizer.centroids)
        return cls(codebook.centres, _flat(codebook), quantizer)

    def coded(self, prepared: Floats) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
        _, nearest = self.flat.search(prepared, 1)
        lists = nearest[:, 0]
        return lists, self.quantizer.compute_codes(np.ascontiguousarray(prepared - self.centres[lists]))


def _flat(codebook: Codebook) -> Any:
    flat = faiss.IndexFlatL2(codebook.centres.shape[1])
    flat.add(np.ascontiguousarray(codebook.centres))
    return flat


def _coder(width: int, lists: int, part: int) -> Any:
    return faiss.IndexIVFPQ(faiss.IndexFlatL2(width), width, lists, width // part, 4)


def _filled(
    codebook: Codebook, sizes: Any, numbers: npt.NDArray[np.int64], codes: npt.NDArray[np.uint8]
) -> tuple[Any, tuple[Any, ...]]:
    """Return an index over lists that are there already, in the layout that is searched many rows at once."""
    flat, width = _flat(codebook), codebook.centres.shape[1]
    plain = faiss.IndexIVFPQ(flat, width, codebook.lists, len(codebook.parts), 4)
    faiss.copy_array_to_vector(np.ascontiguousarray(codebook.parts).ravel(), plain.pq.centroids)
    plain.is_trained = True
    ends = np.cumsum(sizes)
    for number in np.flatnonzero(sizes).tolist():
        start, end = int(ends[number] - sizes[number]), int(ends[number])
        rows, coded = np.ascontiguousarray(numbers[start:end]), np.ascontiguousarray(codes[start:end])
        plain.invlists.add_entries(number, end - start, faiss.swig_ptr(rows), faiss.swig_ptr(coded))
    plain.ntotal = len(numbers)
    packed = faiss.IndexIVFPQFastScan(plain)
    return packed, (flat,)


def _curve(codebook: Codebook, sample: Floats, queries: Floats) -> tuple[tuple[Effort, float], ...]:
    """Find out how much a search of the sample finds of what is near its first vectors, with rising effort."""
    _, truth = faiss.knn(queries, sample, TRIED_K + 1)
    wanted = [row[row != at][:TRIED_K] for at, row in enumerate(truth)]
    lists, codes = _Coder.of(codebook).coded(sample)
    order, none = np.argsort(lists, kind="stable"), np.empty(0, np.uint32)
    sizes = np.bincount(lists, minlength=codebook.lists).astype(np.uint32)
    coded = Sidecar("", "", len(sample), sizes, order.astype(np.uint32), codes[order], none, none)
    shard = Shard.of(codebook, [coded])
    curve: list[tuple[Effort, float]] = []
    for refine in REFINES:
        for probes in efforts(codebook.lists):
            effort = Effort(probes, refine)
            _, seen = shard.search(queries, effort.candidates(TRIED_K) + 1, probes)
            found = float(np.mean([np.isin(want, row).mean() for want, row in zip(wanted, seen, strict=True)]))
            if not curve or found > curve[-1][1]:
                curve.append((effort, found))
            if found >= GOOD_ENOUGH:
                return tuple(curve)
    return tuple(curve)
