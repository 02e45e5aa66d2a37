"""Make the four columns that a synced table has besides the source's own.

==================  ===================================================================================================
``_tide_pk``        the primary key as text; of several columns, joined by ``:``, with ``%`` and ``:`` percent-encoded
``_tide_op``        ``insert``, ``update``, ``delete`` or ``truncate``
``_tide_lsn``       where the change stands: texts that sort as the changes do, ``EPOCH-POSITION-NUMBER`` in hexadecimal
``_tide_event_at``  when it was committed, by the source's clock
==================  ===================================================================================================

It does not read sources.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_DIGITS = np.frombuffer(b"0123456789ABCDEF", np.uint8)
_LENGTH = 30  # of a text, 4 - 16 - 8


def keys_of(columns: Sequence[pa.Array]) -> pa.Array:
    """Return the texts that name rows; null where the first key column is."""
    texts = [each if pa.types.is_string(each.type) else each.cast(pa.string()) for each in columns]
    if len(texts) == 1:
        return texts[0]
    escaped = [pc.replace_substring(pc.replace_substring(each, "%", "%25"), ":", "%3A") for each in texts]
    return pc.binary_join_element_wise(*escaped, ":")


def lsns_of(epoch: int, positions: npt.NDArray[np.int64], numbers: npt.NDArray[np.int64]) -> pa.Array:
    """Return where changes stand as texts that sort as they do."""
    count = len(positions)
    out = np.full((count, _LENGTH), ord("-"), np.uint8)
    out[:, :4] = _hexadecimal(np.full(count, epoch, np.uint64), 4)
    out[:, 5:21] = _hexadecimal(positions.astype(np.uint64), 16)
    out[:, 22:] = _hexadecimal(numbers.astype(np.uint64), 8)
    offsets = np.arange(count + 1, dtype=np.int32) * _LENGTH
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(offsets), pa.py_buffer(out.tobytes())])


def lsn_of(epoch: int, position: int, number: int = 0) -> str:
    """Return where one change stands."""
    return f"{epoch:04X}-{position:016X}-{number:08X}"


def _hexadecimal(numbers: npt.NDArray[np.uint64], width: int) -> npt.NDArray[np.uint8]:
    shifts = np.arange(4 * (width - 1), -1, -4, dtype=np.uint64)
    found: npt.NDArray[np.uint8] = _DIGITS[((numbers[:, None] >> shifts) & np.uint64(15)).astype(np.intp)]
    return found


def epoch_of(lsn: str) -> int:
    """Return the epoch that a change was read in."""
    return int(lsn.partition("-")[0], 16)
