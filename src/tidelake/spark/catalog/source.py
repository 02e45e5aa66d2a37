"""Give Spark's JVM the data source, for sessions in which no Python program registers it. It does not register it."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from pyspark.serializers import CloudPickleSerializer

from tidelake.spark.source import TidelakeSource


def pickled(question: Mapping[str, Any]) -> dict[str, Any]:
    """Return the class of the data source, as Spark's workers take it."""
    code: bytes = CloudPickleSerializer().dumps(TidelakeSource)  # type: ignore[no-untyped-call]
    return {"pickled": base64.b64encode(code).decode()}
