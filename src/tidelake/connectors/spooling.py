"""Hold the changes of large transactions on disk, and not in memory.

A transaction is committed whole, so all of it is at hand first. Pieces beyond some bytes are written to a file that has
no name any more and are read through the system's memory of files, so that they take up memory only while it is free.
It does not decode: whoever does makes pieces of a bounded size.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from tidelake.connectors.protocol import TableChanges

HELD_BYTES = 64 << 20  # in memory, of one batch


class Spool:
    """The changes of one batch, in order."""

    def __init__(self) -> None:
        self.changes: list[TableChanges] = []
        self.bytes = 0
        self._held_bytes = 0

    def add(self, piece: TableChanges) -> None:
        """Take a piece; to disk, if enough is held in memory."""
        size = int(piece.rows.nbytes)
        self.bytes += size
        if self._held_bytes + size > HELD_BYTES:
            piece = replace(piece, rows=_on_disk(piece.rows))
        else:
            self._held_bytes += size
        self.changes.append(piece)


def _on_disk(rows: pa.Table) -> pa.Table:
    """Return the same rows, read from a file that goes when they go."""
    with tempfile.NamedTemporaryFile(prefix="tidelake-sync-", suffix=".arrow", delete=False) as file:
        path = Path(file.name)
    try:
        with pa.OSFile(str(path), "wb") as out, pa.ipc.new_file(out, rows.schema) as writer:
            writer.write_table(rows.combine_chunks())
        return pa.ipc.open_file(pa.memory_map(str(path))).read_all()
    finally:
        path.unlink(missing_ok=True)
