"""Turn frozen values into JSON and back, strictly.

A value is a dataclass of plain fields; its JSON is an object with exactly those fields. Reading refuses a missing or an
unknown field and a value of the wrong type, so that what is read is what was written or an error::

    {"tidelake": "commit", "version": 1, "id": "…", "actions": [{"type": "AddExtent", "extent": {…}}], …}

A field may be a scalar, bytes (base64), a tuple, a mapping with text keys, a value, or a union of values told apart by
``type``. A field that came later (``LATER``) is left out while it has its default, so that what does not use it is
stored as before. It does not evolve a stored shape otherwise: a new shape is a new version, and its reader is written
by hand.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeAlias, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import orjson

from tidelake.errors import CorruptError, InvalidInputError
from tidelake.model.schema import Schema

Value = TypeVar("Value")
Json: TypeAlias = Any  # what orjson writes and reads
LATER = {"later": True}  # the metadata of a field that older documents do not have


def to_document(name: str, version: int, value: Any) -> dict[str, Json]:
    """Return a value as a stored document that names its kind and version."""
    return {"tidelake": name, "version": version, **to_json(value)}


def from_document(name: str, version: int, kind: type[Value], document: Json) -> Value:
    """Read a stored document; a newer version is InvalidInputError, anything else wrong is CorruptError."""
    if not isinstance(document, Mapping) or document.get("tidelake") != name:
        raise CorruptError(f"not a stored {name}", kind="bad_document")
    found = document.get("version")
    if isinstance(found, int) and found > version:
        raise InvalidInputError(f"this {name} was written by a newer tidelake", version=found, reads=version)
    if found != version or isinstance(found, bool):
        raise CorruptError(f"not a stored {name}", version=found, kind="bad_document")
    return from_json(kind, {field: held for field, held in document.items() if field not in ("tidelake", "version")})


def dumps(value: Json) -> bytes:
    """Return JSON as bytes; InvalidInputError if something in it is not JSON."""
    try:
        return orjson.dumps(value)
    except TypeError as error:
        raise InvalidInputError("cannot be kept as JSON", reason=error, kind="not_json") from error


def to_json(value: Any) -> Json:
    """Return the JSON shape of one value."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, Schema):
        return value.to_json()
    if is_dataclass(value):
        shapes, unused = _shapes(cast(Any, type(value))), _unused(value)
        return {name: _tagged(getattr(value, name), shape) for name, shape in shapes.items() if name not in unused}
    if isinstance(value, Mapping):
        return {str(key): to_json(held) for key, held in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    raise InvalidInputError("cannot be kept as JSON", reason=f"a {type(value).__name__}", kind="not_json")


def from_json(kind: type[Value], value: Json) -> Value:
    """Read one value of a dataclass; CorruptError says which field is wrong."""
    return _read_value(kind, value, kind.__name__)  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class _Shape:
    """How one field is stored: the types it may have, or any JSON, and the type of its items."""

    kinds: tuple[Any, ...]
    any: bool = False
    items: _Shape | None = None

    @property
    def tagged(self) -> bool:
        return sum(is_dataclass(kind) for kind in self.kinds) > 1


@cache
def _shapes(kind: type[Any]) -> dict[str, _Shape]:
    hints = get_type_hints(kind)
    return {field.name: _shape(hints[field.name]) for field in fields(kind)}


@cache
def _later(kind: Any) -> dict[str, Any]:
    """Return the fields that came later, with their defaults."""
    return {field.name: field.default for field in fields(kind) if field.metadata.get("later")}


def _unused(value: Any) -> set[str]:
    return {name for name, default in _later(cast(Any, type(value))).items() if getattr(value, name) == default}


def _shape(hint: Any) -> _Shape:
    if hint is Any:
        return _Shape((), any=True)
    if get_origin(hint) in (Union, UnionType):
        shapes = [_shape(part) for part in get_args(hint)]
        items = next((shape.items for shape in shapes if shape.items), None)
        return _Shape(tuple(kind for shape in shapes for kind in shape.kinds), items=items)
    if get_origin(hint) is tuple:
        return _Shape((tuple,), items=_shape(get_args(hint)[0]))
    if get_origin(hint) is not None:
        return _Shape((Mapping,), items=_shape(get_args(hint)[1]))
    return _Shape((hint,))


def _tagged(value: Any, shape: _Shape) -> Json:
    if shape.tagged and is_dataclass(value):
        return {"type": type(value).__name__, **to_json(value)}
    if shape.items is not None and shape.items.tagged and isinstance(value, tuple):
        return [_tagged(item, shape.items) for item in value]
    return to_json(value)


def _read_value(kind: Any, value: Json, where: str) -> Any:
    shapes = _shapes(kind)
    if not isinstance(value, Mapping):
        raise _wrong(where, "not an object")
    if odd := sorted((value.keys() ^ shapes.keys()) - (_later(kind).keys() - value.keys())):
        raise _wrong(where, f"missing or unknown field {odd[0]!r}")
    held = {name: _read(shape, value[name], f"{where}.{name}") for name, shape in shapes.items() if name in value}
    try:
        return kind(**held)
    except InvalidInputError as error:
        raise CorruptError(f"stored value is wrong: {error}", at=where, kind="bad_document") from error


def _read(shape: _Shape, value: Json, where: str) -> Any:
    if shape.any:
        return value
    if value is None and NoneType in shape.kinds:
        return None
    if shape.tagged:
        return _read_tagged(shape, value, where)
    for kind in shape.kinds:
        if kind is not NoneType:
            return _read_one(kind, shape, value, where)
    raise _wrong(where, "not null")


def _read_one(kind: Any, shape: _Shape, value: Json, where: str) -> Any:
    if kind is Schema:
        try:
            return Schema.from_json(value)
        except InvalidInputError as error:
            raise _wrong(where, str(error)) from error
    if is_dataclass(kind):
        return _read_value(kind, value, where)
    if kind is tuple and isinstance(value, list) and shape.items is not None:
        return tuple(_read(shape.items, item, f"{where}[{at}]") for at, item in enumerate(value))
    if kind is Mapping and isinstance(value, Mapping) and shape.items is not None:
        return {key: _read(shape.items, item, f"{where}.{key}") for key, item in value.items()}
    if kind is bytes and isinstance(value, str):
        try:
            return base64.b64decode(value, validate=True)
        except binascii.Error as error:
            raise _wrong(where, "not base64") from error
    if type(value) is kind:
        return value
    raise _wrong(where, f"expected {kind.__name__}, found {type(value).__name__}")


def _read_tagged(shape: _Shape, value: Json, where: str) -> Any:
    kinds: dict[str, Any] = {kind.__name__: kind for kind in shape.kinds if kind is not NoneType}
    if not isinstance(value, Mapping) or value.get("type") not in kinds:
        raise _wrong(where, f"type must be one of {', '.join(sorted(kinds))}")
    body = {name: held for name, held in value.items() if name != "type"}
    return _read_value(kinds[value["type"]], body, where)


def _wrong(where: str, reason: str) -> CorruptError:
    return CorruptError(f"stored value is wrong: {reason}", at=where, kind="bad_document")
