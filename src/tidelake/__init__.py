"""Keep time-stamped data as immutable columnar extents, and read almost nothing you do not need.

``connect`` opens a lake, ``col`` begins an expression. The engine behind them is imported when it is first asked for,
so that ``import tidelake`` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tidelake.errors import (
    AlreadyExistsError,
    CommitUnknownError,
    ConflictError,
    CorruptError,
    InvalidInputError,
    InvalidRangeError,
    NotFoundError,
    OverlapError,
    QueryError,
    SchemaError,
    StorageError,
    TidelakeError,
    UnavailableError,
)

if TYPE_CHECKING:
    from tidelake.dynamic.forms import decode
    from tidelake.lake import Lake, connect
    from tidelake.model.expression import col, cosine_distance, inner_product, l2_distance
    from tidelake.model.schema import Schema
    from tidelake.table import Table

__version__ = "0.1.0"

_LATER = {
    "Lake": "tidelake.lake",
    "Schema": "tidelake.model.schema",
    "Table": "tidelake.table",
    "col": "tidelake.model.expression",
    "connect": "tidelake.lake",
    "cosine_distance": "tidelake.model.expression",
    "decode": "tidelake.dynamic.forms",
    "inner_product": "tidelake.model.expression",
    "l2_distance": "tidelake.model.expression",
}

__all__ = [
    "AlreadyExistsError",
    "CommitUnknownError",
    "ConflictError",
    "CorruptError",
    "InvalidInputError",
    "InvalidRangeError",
    "Lake",
    "NotFoundError",
    "OverlapError",
    "QueryError",
    "Schema",
    "SchemaError",
    "StorageError",
    "Table",
    "TidelakeError",
    "UnavailableError",
    "__version__",
    "col",
    "connect",
    "cosine_distance",
    "decode",
    "inner_product",
    "l2_distance",
]


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'tidelake' has no attribute {name!r}")
    return getattr(import_module(_LATER[name]), name)


def __dir__() -> list[str]:
    return __all__
