"""Flip single bits in the files of a lake, and ask it what it holds.

``build`` makes a lake of two catalogs with everything a file can hold: extents of both formats, hot rows, several
versions of a schema, changed settings, coverage, removed extents, and a log with checkpoints. ``ask`` answers the
questions that a user has. Each flip is undone before the next. It runs as a program too, so that a crash shows::

    python -m tests.support.flips FOLDER SEED COUNT [PATTERN]

It does not judge: it prints a line for each flip that is not as it should be, and what became of the others.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pyarrow as pa
import xxhash

import tidelake
from tidelake.errors import CorruptError, TidelakeError
from tidelake.format import postings
from tidelake.objects import LOG_CURRENT

_TEMPLATES = "select message_template({column}) as t, count(*) as n from {name} group by 1 order by 1"
SHORTER = 40  # files of one kind are alike: some of them are flipped


def build(root: Path) -> None:
    """Make the lakes below a folder."""
    with tidelake.connect(root / "lake") as lake:
        _fill(lake, "obs.events", format="tlm2")
        with _small_postings():
            _fill(lake, "obs.lines", format="tlm3")
        _fill(lake, "obs.parts", format="parquet", bucket="1m", entity="host", coverage="track")
    with tidelake.connect(f"log:{root / 'log'}") as lake:
        _fill(lake, "prices", bucket="1m", entity="host", coverage="track", count=4)


@contextmanager
def _small_postings() -> Iterator[None]:
    """Have extents of few rows tell which rows hold which words."""
    kept, postings.MIN_ROWS, postings.SHARE = (postings.MIN_ROWS, postings.SHARE), 256, 3.0
    try:
        yield
    finally:
        postings.MIN_ROWS, postings.SHARE = kept


def _fill(lake: tidelake.Lake, name: str, *, count: int = 3, **how: Any) -> None:
    schema = {"ts": "timestamp", "host": "string", "n": "long", "load": "real", "attributes": "dynamic"}
    if how.get("format") == "tlm3":
        schema |= {"line": "string", "said": "string", "day": "int", "due": "int"}
    table = lake.create_table(name, schema, time="ts", flush_age="off", **how)

    def rows(at: int, many: int) -> list[dict[str, Any]]:
        return [{**row, **_more(row["n"])} if "line" in schema else row for row in _rows(at, many)]

    for at in range(count):
        table.append(rows(at, 1200))
    for at in range(count, count + 3):
        table.append(rows(at, 3))
    table.flush()
    table.append([{**row, "extra": "text" * 3} for row in rows(40, 3)])
    for at in range(50, 54):
        table.append(rows(at, 4), key=f"batch-{at}")


def _more(n: int) -> dict[str, Any]:
    """Return lines of a log, and days that lie near each other.

    Extents of the third body keep lines by templates, of one every word is a variable, and know their words; they keep
    a day by the other.
    """
    words = ("disk", "full", "on", "host", "retry", "later", "queue", "slow")
    line = f"{words[n % 8]} {words[n * 7 // 5 % 8]} took {n * 7919 % 1009} ms{' Overheated' if n % 300 == 7 else ''}"
    day = n * n * 7919 % 2503
    said = f"job {n * 7919 % 100_003} of node{n % 9} took {n % 17:03d} ms" if n % 300 else f"disk {n} overheated"
    return {"line": line, "said": said, "day": day, "due": day + n * 31 % 30}


def _rows(at: int, count: int) -> list[dict[str, Any]]:
    chance = random.Random(at)
    return [
        {
            "ts": 1_700_000_000_000_000 + at * 3_600_000_000 + row * 1_000_000,
            "host": "a",
            "n": at * 1000 + row,
            "load": chance.random(),
            "attributes": {"path": f"/p/{row % 7}", "code": 200 + row % 3},
        }
        for row in range(count)
    ]


def ask(lake: Path) -> list[Any]:
    """Return the answers to all questions to one of the lakes."""
    where = f"log:{lake}" if lake.name == "log" else lake
    with tidelake.connect(where, create=False) as held:
        answers: list[Any] = [held.tables()]
        for name in held.tables():
            answers += [question(held.table(name)) for question in _QUESTIONS]
            if "line" in held.table(name).schema.names:
                asked = [_TEMPLATES.format(name=name, column=column) for column in ("line", "said")]
                answers += [held.sql(each).to_arrow().to_pylist() for each in asked]
                answers.append(held.kql(f"{name} | where said has 'overheated' | count").to_arrow().to_pylist())
    return answers


def _whole(table: tidelake.Table) -> Any:
    rows = table.scan().read_all().combine_chunks().sort_by([("n", "ascending"), ("ts", "ascending")])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return rows.num_rows, xxhash.xxh3_128_hexdigest(sink.getvalue())


def _counted(**question: Any) -> Callable[[tidelake.Table], Any]:
    return lambda table: sorted(table.scan(columns=["n"], **question).read_all()["n"].to_pylist())


def _history(table: tidelake.Table) -> Any:
    return [(each.sequence, each.totals, each.schema.version, dict(each.settings)) for each in table.history()]


def _covered(table: tidelake.Table) -> Any:
    try:
        gaps = table.coverage.gaps()
    except tidelake.TidelakeError as error:
        if isinstance(error, CorruptError):
            raise
        return error.kind
    return repr(gaps)


_FROM, _UNTIL = "2023-11-15T00:00:00Z", "2023-11-15T00:30:00Z"
_QUESTIONS: tuple[Callable[[tidelake.Table], Any], ...] = (
    lambda table: table.schema.to_json(),
    _whole,
    _counted(start=_FROM, end=_UNTIL),
    _counted(where="n = 1007"),
    _counted(where="n >= 50000"),
    _counted(where="load < 0.01"),
    _counted(where="host = 'a' and n < 3"),
    _counted(where="extra = 'texttexttext'"),
    *(
        lambda table, where=where: _counted(where=where)(table) if "line" in table.schema.names else None
        for where in (
            "line has 'overheated'",
            "line contains 'erheate'",
            "line has '17' and n < 4000",
            "said has 'node7'",
            "due < 9",
        )
    ),
    _history,
    _covered,
)


@contextmanager
def flipped(path: Path, bit: int) -> Iterator[None]:
    """Turn one bit of a file for a while; whatever was written meanwhile is undone too."""
    whole = path.read_bytes()
    damaged = bytearray(whole)
    damaged[bit // 8] ^= 1 << bit % 8
    path.write_bytes(damaged)
    try:
        yield
    finally:
        path.write_bytes(whole)


def flips(root: Path, chance: random.Random, count: int, pattern: str = "*") -> Iterator[tuple[Path, int]]:
    """Choose files, each as often as any other, and a bit of each; a catalog counts for many."""
    files = sorted(path for path in root.rglob("*") if path.is_file() and path.stat().st_size)
    files = [path for path in files if fnmatchcase(str(path.relative_to(root)), pattern)]
    weights = [SHORTER if path.suffix == ".sqlite" else 1 for path in files]
    for path in chance.choices(files, weights, k=count):
        yield path, chance.randrange(path.stat().st_size * 8)


def outcome(lake: Path, expected: list[Any]) -> str:
    """Ask, and say in a word what came of it."""
    try:
        found = ask(lake)
        if found == expected:
            return "same"
        return "WRONG " + next(
            (f"at {n}" for n, (a, b) in enumerate(zip(found, expected, strict=False)) if a != b), "fewer"
        )
    except CorruptError:
        return "corrupt"
    except TidelakeError as error:
        return f"error {error.kind}"
    except Exception as error:
        return f"RAW {type(error).__name__}: {error}"[:200]


def run(root: Path, seed: int, count: int, pattern: str = "*") -> Counter[str]:
    """Flip, ask and count; print what is not as it should be."""
    expected = {lake: ask(lake) for lake in (root / "lake", root / "log")}
    files = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    found: Counter[str] = Counter()
    for path, bit in flips(root, random.Random(seed), count, pattern):
        with flipped(path, bit):
            lake = root / path.relative_to(root).parts[0]
            said = outcome(lake, expected[lake])
        for other in [other for other in root.rglob("*") if other.is_file() and other not in files]:
            other.unlink()  # such as the log of a database that was not closed well
        if path.name != Path(LOG_CURRENT).name:
            _restore(files, Path(LOG_CURRENT).name)
        found[said.split()[0] if said[:1].isupper() else said] += 1
        if said[:1].isupper():
            print(f"{path.relative_to(root)} bit {bit}: {said}", flush=True)
    return found


def _restore(files: dict[Path, bytes], name: str) -> None:
    for path, whole in files.items():
        if path.name == name and path.read_bytes() != whole:
            path.write_bytes(whole)


if __name__ == "__main__":
    print(dict(run(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:5])))
