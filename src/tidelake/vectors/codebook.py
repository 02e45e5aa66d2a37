"""Hold how the vectors of one column are coded: the places of lists, and what codes stand for.

A vector is *prepared* first, so that near always means a small Euclidean distance: for ``cosine`` it is scaled to
length one; for ``dot`` it gets one more component, which makes all vectors equally long; then zeros, until the parts
into which it is cut are equally wide. It belongs to the list whose centre is nearest, and its difference from that
centre is coded with 4 bits for each part. What cannot be coded is *odd* and is compared by itself: components that are
not finite or too large to be squared and, for ``cosine``, zeros.

``curve`` says how many of the ten nearest rows were found in the sample, by how many lists were looked through and how
many candidates were compared exactly for each wanted row. It does not learn or search: see ``quantizing``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tidelake.errors import CorruptError
from tidelake.model.vectors import MIN_LENGTH
from tidelake.vectors.definition import Floats, IndexMetric
from tidelake.vectors.framing import framed, unframed

MAGIC = b"TIDEVCB1"
CODES = 16  # 4 bits
MAX_LENGTH = 1e15  # of a vector that is coded: its square must be a 32-bit float
PART_WIDTHS = ((128, 2), (512, 4), (4096, 8))  # components of a part, up to so many dimensions…
WIDEST_PART = 16  # …and beyond
EXTRA_CANDIDATES = 160  # compared exactly besides a share for each wanted row; see ``candidates``

Mask: TypeAlias = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Effort:
    """How thorough a search is: lists looked through, and how many times the usual candidates."""

    probes: int
    refine: int = 1

    def candidates(self, k: int) -> int:
        """Return how many rows are compared exactly to find ``k``."""
        return (4 * k + EXTRA_CANDIDATES) * self.refine


@dataclass(frozen=True, slots=True, eq=False)
class Codebook:
    """What the codes of a column mean."""

    metric: IndexMetric
    dimensions: int
    reach: float  # for ``dot``: the length to which vectors are filled up
    centres: Floats  # of lists: (lists, width)
    parts: Floats  # what codes stand for: (parts, CODES, components of a part)
    rows: int  # of the table when it was learned
    curve: tuple[tuple[Effort, float], ...] = field(default=())

    @property
    def lists(self) -> int:
        return len(self.centres)

    @property
    def code_bytes(self) -> int:
        """The bytes of one coded vector."""
        return -(-len(self.parts) // 2)

    @property
    def byte_size(self) -> int:
        """The bytes of its arrays."""
        return self.centres.nbytes + self.parts.nbytes

    def prepared(self, vectors: Floats) -> tuple[Floats, Mask]:
        """Return vectors as they are coded, and which of them are odd; those rows are zeros."""
        return prepare(vectors, self.metric, self.reach, self.centres.shape[1])

    def prepared_queries(self, queries: Floats) -> Floats:
        """Return queries so that what is near them is near by the metric, too."""
        wide = np.zeros((len(queries), self.centres.shape[1]), np.float32)
        lengths = _lengths(queries)
        scale = lengths if self.metric == "cosine" else np.ones_like(lengths)
        if self.metric == "dot":  # only its direction decides, so it is brought to where the vectors are
            scale = np.where(lengths > 0, lengths / self.reach, 1.0)
        wide[:, : self.dimensions] = queries / scale[:, None]
        return np.clip(wide, -MAX_LENGTH, MAX_LENGTH)

    def effort(self, recall: float) -> Effort | None:
        """Return the least effort that found so much of the sample; None if none of those tried did."""
        return next((effort for effort, found in self.curve if found >= recall), None)


def encode(codebook: Codebook) -> bytes:
    """Return the bytes of a codebook."""
    header = {
        "metric": codebook.metric,
        "dimensions": codebook.dimensions,
        "reach": codebook.reach,
        "rows": codebook.rows,
        "curve": [[effort.probes, effort.refine, found] for effort, found in codebook.curve],
    }
    return framed(MAGIC, header, [codebook.centres, codebook.parts])


def decode(data: bytes, key: str) -> Codebook:
    """Read what ``encode`` gave; CorruptError if it is anything else."""
    header, arrays = unframed(MAGIC, data, key)
    try:
        centres, parts = arrays
        curve = tuple((Effort(probes, refine), found) for probes, refine, found in header["curve"])
        if centres.ndim != 2 or parts.ndim != 3 or parts.shape[0] * parts.shape[2] != centres.shape[1]:
            raise ValueError("centres and parts do not fit")
        return Codebook(header["metric"], header["dimensions"], header["reach"], centres, parts, header["rows"], curve)
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptError("not a codebook", object=key, reason=str(error), kind="bad_vectors") from error


def part_width(dimensions: int) -> int:
    """Return how many components share a code: the more there are, the fewer bits each gets."""
    return next((width for most, width in PART_WIDTHS if dimensions <= most), WIDEST_PART)


def padded_width(dimensions: int, metric: IndexMetric) -> int:
    """Return how wide a prepared vector is."""
    own, width = dimensions + (metric == "dot"), part_width(dimensions)
    return -(-own // width) * width


def reach_of(vectors: Floats, metric: IndexMetric) -> float:
    """Return the length to which vectors are filled up: that of the longest."""
    lengths = _lengths(vectors) if metric == "dot" and len(vectors) else np.ones(1)
    usable = lengths[np.isfinite(lengths) & (lengths <= MAX_LENGTH)]
    return float(usable.max(initial=0.0)) or 1.0


def prepare(vectors: Floats, metric: IndexMetric, reach: float, width: int) -> tuple[Floats, Mask]:
    """Prepare vectors as this module's text says, and tell which are odd."""
    lengths = _lengths(vectors)
    odd = ~(lengths <= MAX_LENGTH)
    if metric == "cosine":
        odd |= ~(lengths > MIN_LENGTH)
    wide = np.zeros((len(vectors), width), np.float32)
    size = vectors.shape[1]
    scale = np.where(odd, 1.0, lengths) if metric == "cosine" else np.ones_like(lengths)
    with np.errstate(invalid="ignore", over="ignore"):
        wide[:, :size] = vectors / scale[:, None].astype(np.float64)
        if metric == "dot":
            wide[:, size] = np.sqrt(np.maximum(reach * reach - lengths * lengths, 0.0))
    wide[odd] = 0.0
    return wide, odd


def _lengths(vectors: Floats) -> Any:
    with np.errstate(over="ignore", invalid="ignore"):
        return np.sqrt(np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64))


def efforts(lists: int) -> Sequence[int]:
    """Return the numbers of lists that are tried to find out how many are enough, rising."""
    tried = {1, lists}
    step = 2
    while step < lists:
        tried |= {step, min(lists, step * 3 // 2)}
        step *= 2
    return sorted(tried)
