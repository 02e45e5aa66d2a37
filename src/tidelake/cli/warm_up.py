"""Compile what is usually needed, by doing a little of what is usually done, and leave a mark.

Run as ``python -m tidelake.cli.warm_up json`` by a process that found no compiled loops; see ``runtime/readiness.py``.
One process does a part, others that are started for it end at once. For a while it takes only what others leave of the
processor, so that what is done in a minute does not take twice as long; after that like any other process, since
what takes long is done sooner once loops are compiled. A mark is left even when something goes wrong: then loops are
compiled where they are called. It does not touch any lake of the user's.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import orjson

from tidelake.lake import connect
from tidelake.runtime.readiness import PARTS, mark, mark_folder

QUIETLY = "quietly"  # said to a process that takes what others leave of the processor
QUIET_S = 60  # the demonstration and a first file are done by then, on a slow machine too
LOWEST_PRIORITY = 19
ROWS = 6_000  # enough that nothing takes the way of a few rows
_COLUMNS = {"ts": "timestamp", "level": "string", "message": "string", "n": "long", "attributes": "dynamic"}
_QUESTIONS = (
    "select attributes from logs where message ilike '%word 7%' limit 5000",
    "select count(*) from logs where attributes['user.id'] = 'user-7' and attributes:http.status > 300",
    "select attributes:http.status::int as s, count(*) from logs where message like '%word%' group by all",
)


def main(part: str) -> None:
    """Compile one part, unless somebody is at it or has done it."""
    folder = mark_folder()
    if part not in PARTS or folder is None or mark(folder, part).exists():
        return
    with suppress(OSError), _alone(mark(folder, part).with_suffix(".lock")):
        try:
            if not _is_done_quietly(part):
                _WORK[part]()
        finally:
            mark(folder, part).touch()


def _is_done_quietly(part: str) -> bool:
    """Have a part compiled at the lowest priority; false where that takes too long: what it compiled is kept."""
    command = [sys.executable, "-m", "tidelake.cli.warm_up", part, QUIETLY]
    with tempfile.TemporaryDirectory(prefix="tidelake-warm-up-") as place:  # whoever is killed leaves things behind
        try:
            subprocess.run(command, timeout=QUIET_S, check=False, env=os.environ | {"TMPDIR": place})
        except subprocess.TimeoutExpired:
            return False
    return True


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Hold a lock that no other process holds, or fail at once."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def _read_json() -> None:
    with tempfile.TemporaryDirectory(prefix="tidelake-warm-up-") as place, connect(place) as lake:
        file = Path(place) / "rows.ndjson"
        file.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in _rows()))
        lake.create_table("logs", _COLUMNS, time="ts").append(file)
        lake.ingest("found", file)


def _do_others() -> None:
    with tempfile.TemporaryDirectory(prefix="tidelake-warm-up-") as place, connect(place) as lake:
        table = lake.create_table("logs", _COLUMNS, time="ts")
        table.append(list(_rows()))
        table.flush()
        for question in _QUESTIONS:
            lake.sql(question, engine="local").to_arrow()
        lake.kql("logs | where message has 'word' and tostring(attributes.user.id) == 'user-7'").to_arrow()
        told = {"table": "logs", "labels": ["level"]}
        lake.promql("rate(n[1m])", start="2026-01-01T00:01:00Z", end="2026-01-01T00:02:00Z", step=15, table=told)
        file = Path(place) / "rows.csv"
        lines = (f"2026-01-01T00:00:{n % 60:02}Z,{n},{n / 7},word {n}\n" for n in range(ROWS))
        file.write_text("ts,n,x,message\n" + "".join(lines))
        lake.ingest("csv", file)


def _rows() -> Iterator[dict[str, Any]]:
    for n in range(ROWS):
        yield {
            "ts": f"2026-01-01T{n // 3600:02}:{n // 60 % 60:02}:{n % 60:02}.123456Z",
            "level": ("info", "warn")[n % 2],
            "message": f"word {n % 97} and sentence {n} around{n % 7}it"
            if n % 3
            else f"one of id{n * 7919 % 99991:x}f only",
            "n": n,
            "attributes": {
                "http": {"status": 200 + n % 300, "seconds": n / 7},
                "user": {"id": f"user-{n % 50}", "tags": ["a", "b", None, True]},
            },
        }


_WORK: dict[str, Callable[[], None]] = {"json": _read_json, "others": _do_others}

if __name__ == "__main__":
    if sys.argv[2:] == [QUIETLY]:
        os.nice(LOWEST_PRIORITY)
        _WORK[sys.argv[1]]()
    else:
        main(sys.argv[1])
