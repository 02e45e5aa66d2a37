"""Hold where the vectors of one extent lie in a codebook, as arrays and as bytes.

Rows are in the order of their lists: how many each list has, then the rows' positions in the extent, then their codes.
Rows that are odd, and rows without a vector, are in two bitmaps of their own, so every row is in exactly one place. The
bytes name the extent and the codebook that they belong to. It does not read or write objects.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap

from tidelake.errors import CorruptError
from tidelake.vectors.framing import framed, unframed

MAGIC = b"TIDEVEC1"


@dataclass(frozen=True, slots=True, eq=False)
class Sidecar:
    """The coded vectors of one extent."""

    extent_id: str
    codebook_key: str
    rows: int
    sizes: npt.NDArray[np.uint32]  # of the lists
    positions: npt.NDArray[np.uint32]  # in the extent, list by list
    codes: npt.NDArray[np.uint8]  # (coded rows, bytes of a code)
    odd: npt.NDArray[np.uint32]  # positions of vectors that are not coded
    absent: npt.NDArray[np.uint32]  # positions of rows without a vector

    @property
    def lists(self) -> npt.NDArray[np.uint32]:
        """The list of each coded row."""
        return np.repeat(np.arange(len(self.sizes), dtype=np.uint32), self.sizes)


def encode(sidecar: Sidecar) -> bytes:
    """Return the bytes of a sidecar."""
    header = {"extent": sidecar.extent_id, "codebook": sidecar.codebook_key, "rows": sidecar.rows}
    maps = [np.frombuffer(BitMap(each).serialize(), np.uint8) for each in (sidecar.odd, sidecar.absent)]
    return framed(MAGIC, header, [sidecar.sizes, sidecar.positions, sidecar.codes, *maps])


def decode(data: bytes, key: str, *, extent_id: str, codebook_key: str, rows: int) -> Sidecar:
    """Read what ``encode`` gave; CorruptError if it is anything else, or another extent's or codebook's."""
    header, arrays = unframed(MAGIC, data, key)
    told = {"extent": extent_id, "codebook": codebook_key, "rows": rows}
    if header != told:
        raise CorruptError("the codes of other vectors", object=key, found=header.get("extent"), kind="bad_vectors")
    try:
        sizes, positions, codes, *maps = arrays
        odd, absent = (np.array(BitMap.deserialize(each.tobytes()), np.uint32) for each in maps)
        found = Sidecar(extent_id, codebook_key, rows, sizes, positions, codes, odd, absent)
        _check(found)
        return found
    except (ValueError, TypeError) as error:
        raise CorruptError("not a sidecar of vectors", object=key, reason=str(error), kind="bad_vectors") from error


def _check(found: Sidecar) -> None:
    counted: Any = int(found.sizes.sum(dtype=np.int64))
    if counted != len(found.positions) or len(found.codes) != counted or found.codes.ndim != 2:
        raise ValueError("the lists do not add up")
    if counted + len(found.odd) + len(found.absent) != found.rows:
        raise ValueError("not every row is in one place")
    if any(len(each) and int(each.max()) >= found.rows for each in (found.positions, found.odd, found.absent)):
        raise ValueError("a position is beyond the last row")
