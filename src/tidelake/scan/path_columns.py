"""Read what rows have at paths of dynamic columns as columns of their own, without the values around them.

A condition on a path, and a path that a query shows, need the path alone. Extents that keep paths apart give just that;
of others, and of hot rows, the whole value is read and looked through. Either way a batch gets a column named
``path_name(column, path)`` in the form of ``dynamic.path_values``, which ``evaluate`` asks, and of which ``given``
makes the column that a query wants. The template of a text column is read the same way: as a path of it that is
``TEMPLATE``, in the form of texts. It does not plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeGuard, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.dynamic import cbor, path_values
from tidelake.kernels.plain_templates import PLACEHOLDER, VARIABLE
from tidelake.model.path_value import TEMPLATE, PathValue
from tidelake.model.predicate import (
    DynamicPathEquals,
    DynamicPathExists,
    DynamicPathMayHold,
    DynamicPathTest,
    Predicate,
    columns_of,
    leaves_of,
)
from tidelake.pruning.plan import Question
from tidelake.runtime.deferred import deferred

if TYPE_CHECKING:
    from tidelake.dynamic import cbor_json
else:
    cbor_json = deferred("tidelake.dynamic.cbor_json")  # brings a compiler, which planning does without

Path: TypeAlias = tuple[str, str]  # a dynamic column, and the path in it

_PLAIN_KINDS = (cbor.TEXT_KIND, cbor.INT_KIND, cbor.TRUE_KIND, cbor.FALSE_KIND)
_PATH_LEAVES = (DynamicPathEquals, DynamicPathExists, DynamicPathMayHold, DynamicPathTest)


@runtime_checkable
class ReadsPaths(Protocol):
    """A reader of extents that keep paths apart."""

    def read_paths(
        self, block: int, paths: Sequence[Path], places: npt.NDArray[np.int64] | None = None
    ) -> list[pa.StructArray]:
        """Read what the rows of a block have at paths: all of them, or those at some ascending places."""
        ...

    def paths_size(self, block: int, paths: Sequence[Path]) -> int:
        """Return how many bytes that reads, about."""
        ...


def reads_paths(reader: object) -> TypeGuard[ReadsPaths]:
    """Whether a reader is of an extent that keeps paths apart; it is asked for every block, and quickly told."""
    return hasattr(reader, "read_paths")


class ReadsTemplates(Protocol):
    """A reader of extents that may keep the templates of texts apart from the texts."""

    def read_templates(self, block: int, column: str) -> pa.DictionaryArray | None:
        """Read the templates of a block's texts; None if they are not stored."""
        ...


def templates_apart(
    reader: object, block: int, paths: Iterable[Path], elsewhere: Mapping[str, Sequence[Path]]
) -> dict[Path, pa.Array]:
    """Read the templates of text columns that a block keeps apart from the texts, with nothing of them elsewhere."""
    if not _reads_templates(reader):
        return {}
    asked = [each for each in paths if each[1] == TEMPLATE and not elsewhere[each[0]]]
    read = {each: reader.read_templates(block, each[0]) for each in asked}
    return {each: values for each, values in read.items() if values is not None}


def _reads_templates(reader: object) -> TypeGuard[ReadsTemplates]:
    return hasattr(reader, "read_templates")


def filled(values: pa.Array) -> pa.Array:
    """Return what is at a path with all fields that there can be, so that parts of different schemas are joined."""
    return path_values.filled(values) if pa.types.is_struct(values.type) else values


def path_name(column: str, path: str) -> str:
    """Return the name that the values at a path have in a batch; no column of a table has such a name."""
    return f"{column}\0{path}"


def is_apart(path: str) -> bool:
    """Whether a path can be read as a column: not one that steps into lists."""
    return bool(path) and "[" not in path


def paths_in(where: Predicate | None) -> frozenset[Path]:
    """Return the paths that a predicate asks about."""
    leaves = () if where is None else leaves_of(where)
    return frozenset(
        (each.column, each.path) for each in leaves if isinstance(each, _PATH_LEAVES) and is_apart(each.path)
    )


def whole_columns(where: Predicate | None) -> frozenset[str]:
    """Return the columns that a predicate looks at as they are."""
    leaves = () if where is None else leaves_of(where)
    return frozenset(each.column for each in leaves if not (isinstance(each, _PATH_LEAVES) and is_apart(each.path)))


def paths_shown(question: Question) -> frozenset[Path]:
    """Return the paths that a question shows."""
    return frozenset((each.column, each.path) for each in question.computed.values() if isinstance(each, PathValue))


def whole_needed(question: Question) -> tuple[str, ...]:
    """Return the columns that must be read as they are to answer a question, in the schema's order."""
    wanted = {*question.columns, question.ordered_by} | whole_columns(question.where)
    wanted |= {each.column for each in question.computed.values() if not isinstance(each, PathValue)}
    return tuple(name for name in question.schema.names if name in wanted)


def names_asked(where: Predicate) -> frozenset[str]:
    """Return all names in a batch that a predicate may look at."""
    return columns_of(where) | {path_name(*each) for each in paths_in(where)}


def nothing_at(path: str) -> pa.Array:
    """Return what no rows have at a path."""
    return extracted(pa.array([], pa.utf8() if path == TEMPLATE else pa.binary()), path)


def extracted(values: pa.Array, path: str) -> pa.Array:
    """Look through whole values for what they have at a path."""
    if path == TEMPLATE:
        return pc.replace_substring_regex(values, VARIABLE, PLACEHOLDER)
    return path_values.of_extracted(cbor.extract(values, path))


def with_paths(batch: pa.RecordBatch, paths: Iterable[Path], found: Iterable[pa.StructArray]) -> pa.RecordBatch:
    """Add the values at paths to a batch."""
    for path, values in zip(paths, found, strict=True):
        batch = batch.append_column(path_name(*path), values)
    return batch


def given(wanted: PathValue, values: pa.StructArray) -> pa.Array:
    """Return the values at a path in the form that a query wants."""
    match wanted.form:
        case "template":
            return _plain(values)
        case "text":
            return _plain(path_values.texts(values))
        case "number":
            return _finite(path_values.numbers(values))
        case "flag":
            return path_values.flags(values)
        case "plain":
            return _plain_texts(values)
        case "item":
            return path_values.items_and_nulls(values)
        case "json":
            return cbor_json.json_of(path_values.items(values))
        case "json_but_numbers":
            return _json_without(values, np.asarray(_finite(path_values.numbers(values)).is_valid()))
        case "json_but_texts":
            return _json_without(values, path_values.kinds_of(values) == cbor.TEXT_KIND)
        case _:
            return _json_without(values, np.isin(path_values.kinds_of(values), _PLAIN_KINDS))


def _plain(texts: pa.Array) -> pa.Array:
    return texts.dictionary_decode() if pa.types.is_dictionary(texts.type) else texts


def _finite(reals: pa.Array) -> pa.Array:
    """Leave out what JSON has no number for: there it is a text."""
    return pc.if_else(pc.is_finite(reals), reals, pa.scalar(None, pa.float64()))


def _plain_texts(values: pa.StructArray) -> pa.Array:
    """Return texts, whole numbers and booleans as text."""
    texts = _plain(path_values.texts(values))
    parts = [] if texts.null_count == len(texts) else [texts]
    if (ints := path_values.field(values, "int")) is not None:
        parts.append(ints.cast(pa.utf8()))
    flags = path_values.flags(values)
    if flags.null_count < len(flags):
        parts.append(flags.cast(pa.utf8()))
    if not parts:
        return texts
    return parts[0] if len(parts) == 1 else pc.coalesce(*parts)


def _json_without(values: pa.StructArray, left_out: npt.NDArray[np.bool_]) -> pa.Array:
    """Return the values at a path as JSON, but for some rows."""
    if not ((path_values.kinds_of(values) > cbor.NULL_KIND) & ~left_out).any():
        return pa.nulls(len(values), pa.utf8())
    others = pc.if_else(pa.array(left_out), pa.scalar(None, pa.binary()), path_values.items(values))
    return cbor_json.json_of(others)
