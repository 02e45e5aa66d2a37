"""Write the sidecars of extents, and read codebooks and sidecars back.

A sidecar is written right after its extent and before the commit that names it, from the extent as it was stored. It is
never needed: where a codebook or a sidecar cannot be read or written, vectors are searched as they are, and upkeep
writes it later. It does not commit or search.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Mapping
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa

from tidelake.errors import CorruptError, NotFoundError, StorageError
from tidelake.format import ExtentReader, segment_format
from tidelake.model.schema import Schema
from tidelake.model.snapshot import Extent
from tidelake.objects import ObjectStore
from tidelake.runtime.forking import renew_after_fork
from tidelake.vectors import codebook as codebooks
from tidelake.vectors import quantizing
from tidelake.vectors import sidecar as sidecars
from tidelake.vectors.codebook import Codebook, Mask
from tidelake.vectors.definition import Floats, VectorIndex, indexes_of
from tidelake.vectors.sidecar import Sidecar

CODEBOOKS_KEPT = 64

_logger = logging.getLogger(__name__)


def write_sidecars(store: ObjectStore, settings: Mapping[str, Any], schema: Schema, extent: Extent) -> list[str]:
    """Write the sidecars of an extent that was just stored, for all indexes that have a codebook; return their keys."""
    return [
        key
        for index in indexes_of(settings, schema).values()
        if quantizing.is_available() and (key := _try_to_write(store, index, extent)) is not None
    ]


def _try_to_write(store: ObjectStore, index: VectorIndex, extent: Extent) -> str | None:
    try:
        known = read_codebook(store, index)
        return None if known is None else write_sidecar(store, index, known, extent)
    except StorageError as error:  # the rows are safe without it
        _logger.warning("the vectors of an extent are not coded yet object=%s: %s", extent.key, error)
        return None


def write_sidecar(store: ObjectStore, index: VectorIndex, known: Codebook, extent: Extent) -> str:
    """Code the vectors of an extent as they are stored, write them and return the key."""
    reader = segment_format(extent.format).open_extent(store, extent.key)
    vectors, present = vectors_of(reader, index)
    made = quantizing.code(known, index.codebook_key, vectors, present, extent.id)
    key = index.sidecar_key(extent.key)
    store.put(key, sidecars.encode(made))
    return key


def read_sidecar(store: ObjectStore, index: VectorIndex, known: Codebook, extent: Extent) -> Sidecar:
    """Read the sidecar of an extent; NotFoundError or CorruptError if it cannot be used."""
    key = index.sidecar_key(extent.key)
    found = sidecars.decode(
        bytes(store.get(key)), key, extent_id=extent.id, codebook_key=index.codebook_key, rows=extent.row_count
    )
    if len(found.sizes) != known.lists or found.codes.shape[1] != known.code_bytes:
        raise CorruptError("codes of another codebook", object=key, kind="bad_vectors")
    return found


def has_sidecar(store: ObjectStore, index: VectorIndex, extent: Extent) -> bool:
    """Whether the sidecar of an extent is there; it is not read."""
    try:
        store.head(index.sidecar_key(extent.key))
    except NotFoundError:
        return False
    return True


def read_codebook(store: ObjectStore, index: VectorIndex) -> Codebook | None:
    """Return the codebook of an index; None if it is not there, or damaged, which is logged."""
    where = (store.url, index.codebook_key)
    if (held := _KEPT.get(where)) is not None:
        return held
    try:
        found = codebooks.decode(bytes(store.get(index.codebook_key)), index.codebook_key)
    except NotFoundError:
        return None
    except CorruptError as error:
        _logger.warning("a codebook cannot be used: %s", error)
        return None
    if (found.metric, found.dimensions) != (index.metric, index.dimensions):
        _logger.warning("a codebook is that of another column object=%s", index.codebook_key)
        return None
    _KEPT.keep(where, found)
    return found


def vectors_of(reader: ExtentReader, index: VectorIndex) -> tuple[Floats, Mask]:
    """Read the vectors of an extent that are there, and which rows have one."""
    blocks = reader.metadata().blocks
    rows = reader.metadata().row_count
    if index.column not in reader.metadata().schema:
        return np.empty((0, index.dimensions), np.float32), np.zeros(rows, np.bool_)
    arrays = (reader.read_block(number, [index.column]).column(0) for number in range(len(blocks)))
    parts = [(matrix_of(array, index.dimensions), valid_in(array)) for array in arrays]
    vectors = [matrix if valid.all() else matrix[valid] for matrix, valid in parts]
    return (
        np.concatenate([np.empty((0, index.dimensions), np.float32), *vectors]),
        np.concatenate([np.empty(0, np.bool_), *(valid for _, valid in parts)]),
    )


def matrix_of(array: pa.Array, dimensions: int) -> Floats:
    """Return vectors as the rows of a matrix, without a copy; those that are null are anything."""
    if array.null_count == len(array):
        return np.zeros((len(array), dimensions), np.float32)
    flat: Floats = array.values.to_numpy(zero_copy_only=False)
    return flat.reshape(-1, dimensions)[array.offset : array.offset + len(array)]


def valid_in(array: pa.Array) -> Mask:
    """Return which values of a column are not null."""
    if not array.null_count:
        return np.ones(len(array), np.bool_)
    valid: Mask = array.is_valid().to_numpy(zero_copy_only=False)
    return valid


class _Kept:
    """Codebooks that were read last."""

    def __init__(self) -> None:
        self.renew_after_fork()
        renew_after_fork(self)

    def renew_after_fork(self) -> None:
        """Begin anew in a forked child."""
        self._lock = Lock()
        self._held: OrderedDict[tuple[str, str], Codebook] = OrderedDict()

    def get(self, where: tuple[str, str]) -> Codebook | None:
        with self._lock:
            return self._held.get(where)

    def keep(self, where: tuple[str, str], found: Codebook) -> None:
        with self._lock:
            self._held[where] = found
            while len(self._held) > CODEBOOKS_KEPT:
                self._held.popitem(last=False)

    def forget(self, where: tuple[str, str]) -> None:
        with self._lock:
            self._held.pop(where, None)


_KEPT = _Kept()


def forget_codebook(store: ObjectStore, index: VectorIndex) -> None:
    """Forget a codebook that may have changed."""
    _KEPT.forget((store.url, index.codebook_key))
