"""Compile the decoders in a process of its own, so that the code is on the disk when a server wants it.

    python -m tidelake.server.wire.warming

A compiler holds the interpreter lock, and clients would wait for it. What is not a server's alone is compiled by
``cli.warm_up``. It does not print anything.
"""

from __future__ import annotations

from tidelake.runtime.compiling import HAS_COMPILER, is_kept
from tidelake.server.protocols import remote_write
from tidelake.server.wire import otlp, proto_loops
from tidelake.server.wire import remote_write as series_loops


def is_warm() -> bool:
    """Whether the code of the decoders is on the disk, or nothing would put it there."""
    return all(map(is_kept, (proto_loops.scan, proto_loops.put_buckets, series_loops.write_labels)))


def warm() -> None:
    """Compile the decoders, or load them; first that of samples, which has no plain reader to serve meanwhile."""
    if HAS_COMPILER:
        remote_write.warm()
        otlp.warm()


if __name__ == "__main__":
    warm()
