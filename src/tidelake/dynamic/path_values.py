"""Hold what the rows of a block have at one path of a dynamic column, apart by type.

It is an Arrow struct, so that rows can be taken and filtered like those of any column: ``kind`` says what is there, in
the numbers of ``cbor`` (``MISSING_KIND`` …), and for each type that occurs a field has its values: ``int``, ``real``,
``text`` (plain, or numbers into a dictionary) and ``other``, the CBOR of everything else. A field that is not there has
no values. It does not read extents.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.dynamic import cbor
from tidelake.dynamic.cbor import (
    FALSE_KIND,
    INT_KIND,
    MISSING_KIND,
    NULL_KIND,
    OTHER_KIND,
    REAL_KIND,
    TEXT_KIND,
    TRUE_KIND,
    Extracted,
)
from tidelake.dynamic.cbor_encode import encoded
from tidelake.dynamic.shredding import BOOL, EMPTY, INT, NULL, REAL, TEXT_LEAF
from tidelake.kernels.spreading import spread

_EMPTY_MAP = b"\xa0"
_NULL_ITEM = b"\xf6"
_FIELDS: Mapping[int, tuple[str, int]] = {
    INT: ("int", INT_KIND),
    REAL: ("real", REAL_KIND),
    TEXT_LEAF: ("text", TEXT_KIND),
}

_TYPES = {"int": pa.int64(), "real": pa.float64(), "text": pa.utf8(), "other": pa.binary()}

_Bools = npt.NDArray[np.bool_]


def put(
    kinds: npt.NDArray[np.uint8], fields: dict[str, pa.Array], kind: int, having: _Bools, values: pa.Array | None
) -> None:
    """Put the values of a leaf where rows have them; ``kind`` is the leaf's."""
    if kind == NULL:
        kinds[having] = NULL_KIND
    elif kind == BOOL and values is not None:
        flags = values.to_numpy(zero_copy_only=False)
        kinds[having] = np.where(flags, TRUE_KIND, FALSE_KIND)
    elif kind in _FIELDS and values is not None:
        name, kinds[having] = _FIELDS[kind]
        fields[name] = values if having.all() else spread(values, having)
    else:
        kinds[having] = OTHER_KIND
        if kind == EMPTY or values is None:
            values = pa.array([_EMPTY_MAP] * int(having.sum()), pa.binary())
        own = values if having.all() else spread(values, having)
        fields["other"] = pc.coalesce(fields["other"], own) if "other" in fields else own


def joined(kinds: npt.NDArray[np.uint8], fields: Mapping[str, pa.Array]) -> pa.StructArray:
    """Return the struct of these fields."""
    return pa.StructArray.from_arrays([pa.array(kinds), *fields.values()], names=["kind", *fields])


def of_texts(texts: pa.Array) -> pa.StructArray:
    """Return the struct of rows that all have a text."""
    return joined(np.full(len(texts), TEXT_KIND, dtype=np.uint8), {"text": texts})


def of_extracted(found: Extracted) -> pa.StructArray:
    """Return what was found by looking through whole values."""
    fields: dict[str, pa.Array] = {}
    for name, kind, values in (("int", INT_KIND, found.ints), ("real", REAL_KIND, found.reals)):
        if (held := found.kinds == kind).any():
            fields[name] = pa.array(values, mask=~held)
    if (found.kinds == TEXT_KIND).any():
        fields["text"] = found.as_strings()
    if (found.kinds == OTHER_KIND).any():
        fields["other"] = found.as_bytes()
    return joined(found.kinds, fields)


def filled(values: pa.StructArray) -> pa.StructArray:
    """Return the same with all fields, so that it can be joined with others; texts are plain."""
    fields = {name: field(values, name) for name in _TYPES}
    if fields["text"] is not None and pa.types.is_dictionary(fields["text"].type):
        fields["text"] = fields["text"].dictionary_decode()
    whole = {name: pa.nulls(len(values), _TYPES[name]) if held is None else held for name, held in fields.items()}
    return joined(kinds_of(values), whole)


def kinds_of(values: pa.StructArray) -> npt.NDArray[np.uint8]:
    """Return what each row has."""
    return np.asarray(values.field("kind").to_numpy())


def field(values: pa.StructArray, name: str) -> pa.Array | None:
    """Return the values of one type, null where a row has another; None if no row has one."""
    at = values.type.get_field_index(name)
    return None if at < 0 else values.field(at)


def texts(values: pa.StructArray) -> pa.Array:
    """Return the texts, plain or numbers into a dictionary; null where there is something else."""
    found = field(values, "text")
    return pa.nulls(len(values), pa.utf8()) if found is None else found


def numbers(values: pa.StructArray) -> pa.Array:
    """Return numbers as doubles; integers beyond 64 bits among them."""
    ints, reals, others = field(values, "int"), field(values, "real"), field(values, "other")
    parts = [] if ints is None else [ints.cast(pa.float64(), safe=False)]
    parts += [] if reals is None else [reals]
    if others is not None and (bigs := _bigs(others)):
        whole: Any = np.full(len(values), None, dtype=object)
        for row, number in bigs.items():
            whole[row] = _as_real(number)
        parts.append(pa.array(whole, pa.float64()))
    return pc.coalesce(*parts) if parts else pa.nulls(len(values), pa.float64())


def flags(values: pa.StructArray) -> pa.Array:
    """Return booleans."""
    kinds = kinds_of(values)
    is_true = kinds == TRUE_KIND
    return pa.array(is_true, mask=~(is_true | (kinds == FALSE_KIND)))


def items(values: pa.StructArray) -> pa.Array:
    """Return what is at the path as a dynamic column of its own; null where there is nothing, or null."""
    typed = [found for name in ("text", "int", "real") if (found := field(values, name)) is not None]
    parts = [encoded(found.dictionary_decode() if pa.types.is_dictionary(found.type) else found) for found in typed]
    booleans = flags(values)
    if booleans.null_count < len(booleans):
        parts.append(encoded(booleans))
    if (others := field(values, "other")) is not None:
        parts.append(others)
    return pc.coalesce(*parts) if parts else pa.nulls(len(values), pa.binary())


def items_and_nulls(values: pa.StructArray) -> pa.Array:
    """Return what is at the path as dynamic values, of which one may be null; null where there is nothing."""
    are_null = kinds_of(values) == NULL_KIND
    found = items(values)
    return pc.if_else(pa.array(are_null), pa.scalar(_NULL_ITEM, pa.binary()), found) if are_null.any() else found


def _bigs(others: pa.Array) -> dict[int, int]:
    extracted = cbor.whole(others)
    return extracted.big_ints()


def _as_real(number: int) -> float | None:
    try:
        return float(number)
    except OverflowError:
        return None


def is_present(values: pa.StructArray) -> _Bools:
    """Return which rows have something at the path, null included."""
    return np.asarray(kinds_of(values) != MISSING_KIND)
