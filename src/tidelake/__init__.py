"""Keep time-stamped data as immutable columnar extents, and read almost nothing you do not need."""

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

__version__ = "0.1.0"

__all__ = [
    "AlreadyExistsError",
    "CommitUnknownError",
    "ConflictError",
    "CorruptError",
    "InvalidInputError",
    "InvalidRangeError",
    "NotFoundError",
    "OverlapError",
    "QueryError",
    "SchemaError",
    "StorageError",
    "TidelakeError",
    "UnavailableError",
    "__version__",
]
