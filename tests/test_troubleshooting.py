"""Produce every error that the troubleshooting page explains."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tidelake
from tidelake.cli.demo import require_java

PAGE = Path(__file__).parents[1] / "docs" / "troubleshooting.md"
SECTIONS = dict(re.findall(r"^### `(.*?)`\n\n`(\w+)`\.", PAGE.read_text(), re.MULTILINE))

SCHEMA = {"ts": "timestamp", "n": "int", "v": "vector(3)", "s": "string"}
GOOD = {"ts": 1773489601, "n": 1}


def logs(folder: Path) -> tidelake.Table:
    return tidelake.connect(folder / "lake").create_table("logs", SCHEMA)


def other(folder: Path) -> Path:
    (folder / "other").mkdir()
    (folder / "other" / "notes.txt").write_text("mine")
    return folder / "other"


def dated_file(folder: Path) -> Path:
    (folder / "dated.csv").write_bytes(b"ts,s\n3/4/2026 12:00,web\n")
    return folder / "dated.csv"


def binary_file(folder: Path) -> Path:
    (folder / "program").write_bytes(bytes(range(256)))
    return folder / "program"


def make_twice(folder: Path) -> None:
    logs(folder)
    logs(folder)


def damage(folder: Path, change: Callable[[Path], Any]) -> None:
    table = logs(folder)
    table.append([GOOD | {"n": n} for n in range(5000)])
    (extent,) = table.extents()
    change(folder / "lake" / extent.key)
    tidelake.connect(folder / "lake").table("logs").scan().read_all()


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 255
    path.write_bytes(data)


def without_java(folder: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(folder))
        patch.delenv("JAVA_HOME", raising=False)
        require_java()


def asked(text: str, **options: Any) -> Callable[[Path], Any]:
    def ask(folder: Path) -> None:
        logs(folder)
        lake = tidelake.connect(folder / "lake")
        (lake.sql if text.startswith(("select", "delete")) else lake.kql)(text, **options).to_arrow()

    return ask


def overlap(folder: Path) -> None:
    with tidelake.connect(folder / "lake") as lake:
        cpu = lake.create_table("cpu", SCHEMA, bucket="1m", entity=["s"], coverage="exclusive")
        cpu.append([GOOD | {"s": "web"}])
        cpu.append([GOOD | {"s": "web"}])


PRODUCERS: dict[str, Callable[[Path], Any]] = {
    "not a lake": lambda folder: tidelake.connect(other(folder)),
    "no lake here": lambda folder: tidelake.connect(folder / "none", create=False),
    "is not a lake: give a folder": lambda folder: tidelake.connect("mysql://host/db"),
    "the catalog cannot be reached": lambda folder: tidelake.connect("postgresql://a@127.0.0.1:1/b", objects=folder),
    "a postgresql catalog needs objects=": lambda folder: tidelake.connect("postgresql://a@127.0.0.1:1/b"),
    "no such table": lambda folder: tidelake.connect(folder / "lake").table("logs"),
    "the table exists": make_twice,
    "unknown type": lambda folder: tidelake.connect(folder / "lake").create_table("t", {"a": "text"}),
    "is not a table name": lambda folder: tidelake.connect(folder / "lake").create_table("a b", SCHEMA),
    "a schema only widens": lambda folder: logs(folder).add_column("n", "string"),
    "a row has no time in the table's time column": lambda folder: logs(folder).append([{"n": 1}]),
    "bad JSON": lambda folder: logs(folder).append(b'{"ts": 1773489601}\n{"ts": \n'),
    "not a vector of the column's length": lambda folder: logs(folder).append([GOOD | {"v": [1.0, 2.0]}]),
    "no such file": lambda folder: logs(folder).append("missing.ndjson"),
    "no time was found in the lines": lambda folder: logs(folder).append(other(folder) / "notes.txt"),
    "day and month cannot be told apart": lambda folder: logs(folder).append(dated_file(folder)),
    "the file is not text": lambda folder: logs(folder).append(binary_file(folder)),
    "no time column was found": lambda folder: tidelake.connect(folder / "lake").ingest("t", [{"a": 1}]),
    "not every row has a time there": lambda folder: tidelake.connect(folder / "lake").ingest("t", [{"ts": "1/2/26"}]),
    "a folder is not a file": lambda folder: logs(folder).append(folder),
    "an older snapshot can only be read": lambda folder: (
        logs(folder),
        tidelake.connect(folder / "lake").table("logs", snapshot=1).append([GOOD]),
    ),
    "no column": lambda folder: logs(folder).scan(where="nn == 1"),
    "expected a value": lambda folder: logs(folder).scan(where="n == "),
    "cannot be compared with": lambda folder: logs(folder).scan(where="n == 'x'"),
    "unknown table": asked("nope | take 1"),
    "there is no column": asked("select nope from logs"),
    "unknown operator": asked("logs | were n > 1"),
    "unknown function": asked("logs | extend x = nofunc(n)"),
    "there is no function": asked("select nofunc(n) from logs"),
    "a query reads tables of the lake alone": asked("select * from read_text('/etc/passwd')"),
    "only queries can be run": asked("delete from logs"),
    "the query took longer than its budget": asked(
        "select count(*) from range(100000) a, range(100000) b, range(100000) c", budget={"seconds": 0.2}
    ),
    "the result is larger than its budget": asked("select * from range(1000000)", budget={"memory": "16MB"}),
    "the query is too long": asked("select '" + "x" * 1_000_000 + "'"),
    "is not an engine": asked("select 1", engine="fast"),
    "the time window is already held": overlap,
    "is not a bucket such as": lambda folder: tidelake.connect(folder / "lake").create_table(
        "cpu", SCHEMA, bucket="5 parsecs"
    ),
    "the table keeps no coverage": lambda folder: logs(folder).coverage.gaps(),
    "needs Java 17": without_java,
    "the range's start is not before its end": lambda folder: logs(folder).scan(start="2026-01-02", end="2026-01-01"),
    "is not a time such as": lambda folder: logs(folder).scan(start="yesterday"),
    "is too small for a time": lambda folder: logs(folder).scan(start=20260131),
    "a time cannot be compared with a number": lambda folder: (
        logs(folder),
        tidelake.connect(folder / "lake").sql("select * from logs where ts > 1767225600"),
    ),
    "no such snapshot, or it has expired": lambda folder: (
        logs(folder),
        tidelake.connect(folder / "lake").table("logs", snapshot=99),
    ),
    "checksum mismatch": lambda folder: damage(folder, flip),
    "no such object": lambda folder: damage(folder, Path.unlink),
}


def test_every_message_on_the_page_has_a_producer() -> None:
    assert set(PRODUCERS) == set(SECTIONS)


@pytest.mark.parametrize("message", sorted(SECTIONS))
def test_message_on_the_page_is_the_one_a_user_sees(message: str, tmp_path: Path) -> None:
    with pytest.raises(tidelake.TidelakeError) as caught:
        PRODUCERS[message](tmp_path)
    assert message in str(caught.value)
    assert type(caught.value).__name__ == SECTIONS[message]
