"""Values that nobody predicted: canonical CBOR, paths into it, and its ways out as JSON, structs and Python objects.

May import ``kernels`` and below. Its door is this module for one value, ``cbor`` for whole columns, ``forms`` for what
users see.
"""

from tidelake.dynamic.values import MAX_DEPTH, decode, encode, get_path, paths_of, real_text, to_json

__all__ = ["MAX_DEPTH", "decode", "encode", "get_path", "paths_of", "real_text", "to_json"]
