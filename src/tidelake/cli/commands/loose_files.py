"""Ask files that are in no lake: they are read into one that lasts as long as the question.

Each file becomes the table that is called as the file is, up to its first dot; files of one name become one table. They
are read by the readers of ``ingest``, and only because a person named them on the command line: no query can name a
file. It does not keep anything.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from tidelake.errors import NotFoundError

if TYPE_CHECKING:
    from tidelake.lake import Lake

INPUT_NAME = "stdin"  # the table that standard input becomes


@contextmanager
def lake_of(files: Sequence[str], options: Mapping[str, Any]) -> Iterator[Lake]:
    """Lend a lake with the rows of files, read as ``Lake.ingest`` is told, in a folder that is removed afterwards."""
    from tidelake.lake import connect

    for file in files:
        if file != "-" and not Path(file).exists():
            raise NotFoundError("no such file", path=file)
    with TemporaryDirectory(prefix="tidelake-") as folder, connect(Path(folder) / "lake") as lake:
        for file in files:
            place = sys.stdin.buffer if file == "-" else Path(file)
            lake.ingest(table_name(file), place, quarantine=Path(folder) / "left-out.ndjson", **options)
        yield lake


def table_name(file: str) -> str:
    """Return the table's name for a file: ``logs/my-app.ndjson.gz`` is ``my_app``."""
    stem = re.sub(r"\W", "_", Path(file).name.lstrip(".").partition(".")[0], flags=re.ASCII)
    named = stem if re.match(r"[A-Za-z]", stem) else f"t{stem}"
    return INPUT_NAME if file == "-" else named
