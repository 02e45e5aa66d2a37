"""Write dynamic values as JSON text, a column at a time.

It does not read JSON: see ``ingest``.
"""

from __future__ import annotations

import json

import pyarrow as pa

from tidelake.dynamic import decode, to_json


def json_of(values: pa.Array) -> pa.Array:
    """Give a column of CBOR as JSON text; nulls stay null."""
    texts = [None if each is None else json.dumps(to_json(decode(each))) for each in values.to_pylist()]
    return pa.array(texts, pa.utf8())
