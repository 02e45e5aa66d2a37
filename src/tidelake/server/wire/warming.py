"""Compile the decoders in a process of its own, so that the code is on the disk when a server wants it.

    python -m tidelake.server.wire.warming

A compiler holds the interpreter lock, and clients would wait for it. What is not a server's alone is compiled by
``cli.warm_up``. It does not print anything.
"""

from __future__ import annotations

from tidelake.runtime.compiling import is_kept
from tidelake.server.wire import otlp, proto_loops


def is_warm() -> bool:
    """Whether the code of the decoders is on the disk, or nothing would put it there."""
    return is_kept(proto_loops.scan) and is_kept(proto_loops.put_buckets)


if __name__ == "__main__":
    otlp.warm()
