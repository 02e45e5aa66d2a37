"""Choose the engine: in process for what is small after pruning, Spark for the rest.

It does not plan: it is given what each scan will read.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec
from typing import Literal, TypeAlias, cast

from tidelake.errors import InvalidInputError
from tidelake.query.prepared import Scan

# Bytes as stored that the local engine takes on: some ten seconds of decoding on two cores, and about as much as it
# takes until a Spark session has started.
LOCAL_BYTES = 2 << 30

Engine: TypeAlias = Literal["local", "spark"]


def choose_engine(wanted: str, scans: Iterable[Scan]) -> Engine:
    """Return the engine that was asked for, or the one that suits what the scans read."""
    if wanted not in ("auto", "local", "spark"):
        raise InvalidInputError(f"{wanted!r} is not an engine: auto, local or spark", kind="bad_engine")
    if wanted != "auto":
        return cast(Engine, wanted)
    small = sum(scan.byte_size for scan in scans) <= LOCAL_BYTES
    return "local" if small or find_spec("pyspark") is None else "spark"
