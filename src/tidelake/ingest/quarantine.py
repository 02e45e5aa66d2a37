"""Keep the rows that were passed over, one JSON object a line: file, line, reason, raw text.

The file is there once a row is in it and the rest was committed: until then it has another name, and what failed
leaves none. It does not decide which rows are bad.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO

import orjson

from tidelake.errors import StorageError

PARTIAL = ".partial"  # what the name ends with until the rest is committed
MAX_RAW_CHARACTERS = 1 << 20  # of one line


class Quarantine:
    """The rows of one file that were passed over."""

    def __init__(self, path: Path, file: str) -> None:
        self.path, self.count = path, 0
        self._name = file
        self._partial = path.with_name(path.name + PARTIAL)
        self._out: IO[bytes] | None = None

    def add(self, line: int, reason: str, raw: str) -> None:
        """Keep one row."""
        try:
            if self._out is None:
                self._out = self._partial.open("wb")
            row = {"file": self._name, "line": line, "reason": reason, "raw": raw[:MAX_RAW_CHARACTERS]}
            self._out.write(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE))
        except OSError as error:
            raise StorageError(
                "the quarantine file cannot be written: choose another with quarantine=",
                path=self.path, reason=error.strerror,
            ) from error  # fmt: skip
        self.count += 1

    def restart(self) -> None:
        """Forget what was kept: the rows are read once more."""
        self.abandon()
        self.count = 0

    def finish(self) -> None:
        """Give the file its name, if it holds anything."""
        if self._out is not None:
            self._out.flush()
            os.fsync(self._out.fileno())
            self._out.close()
            self._out = None
            self._partial.replace(self.path)

    def abandon(self) -> None:
        """Leave nothing behind."""
        if self._out is not None:
            self._out.close()
            self._out = None
            self._partial.unlink(missing_ok=True)
