"""See that nobody waits for a compiler: what has a plain way takes it while other processes compile."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import orjson
import pytest

from tidelake.cli import warm_up
from tidelake.runtime import readiness

LISTENING = """
import sys
import tidelake
from numba.core import event
from tidelake.runtime import readiness

begun, compiled = [], []
class Popen:
    def __init__(self, command, **rest): begun.append(command[-1])
    def poll(self): return None
readiness.subprocess.Popen = Popen
class Listener(event.Listener):
    def on_start(self, event): compiled.append(event.data["dispatcher"].py_func.__name__)
    def on_end(self, event): pass
event.register("numba:compile", Listener())
"""
INGESTED = """
with tidelake.connect(sys.argv[1]) as lake:
    lake.ingest("t", sys.argv[2])

    lake.table("t").flush()
    print(lake.sql("select count(*) as n from t where message like '%word 7%'").to_arrow()["n"][0].as_py())
    assert lake.sql("select more from t where n < 3", engine="local").to_arrow().num_rows == 3
print(begun, compiled, readiness.has_loops())
"""
REFUSED = """
with tidelake.connect(sys.argv[1]) as lake:
    try:
        lake.ingest("t", sys.argv[2])
    except tidelake.InvalidInputError as error:
        print(error.message, error.facts["line"], error.facts["column"])
print(begun, compiled, readiness.has_loops())
"""
LOADED = """
from tidelake.ingest import Rules
from tidelake.spark.files import PieceReader, cut_pieces, sample_schema

[piece] = cut_pieces(sys.argv[2])
schema, time = sample_schema(piece, "ts")
reader = PieceReader(piece, schema, Rules(time=time))
print(sum(found.batch.num_rows for found in reader.read()), [(bad.line, bad.record) for bad in reader.bad])
print(begun, compiled, readiness.has_loops())
"""


def fresh(cache: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name != readiness.AT_ONCE}
    return kept | {"NUMBA_CACHE_DIR": str(cache)}


def run(script: str, tmp_path: Path) -> list[str]:
    arguments = [sys.executable, "-c", LISTENING + script, str(tmp_path / "lake"), str(tmp_path / "rows.ndjson")]
    found = subprocess.run(arguments, capture_output=True, text=True, env=fresh(tmp_path / "cache"))
    assert found.returncode == 0, found.stderr
    return found.stdout.splitlines()


def test_a_file_is_read_and_asked_while_others_compile(tmp_path: Path) -> None:
    rows = [{"ts": f"2026-01-01T00:{n // 60:02}:{n % 60:02}Z", "message": f"word {n}", "n": n} for n in range(3_000)]
    rows = [{**row, "more": {"a": [row["n"], 1.5]}} for row in rows]
    (tmp_path / "rows.ndjson").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    count, told = run(INGESTED, tmp_path)
    assert int(count) == sum("word 7" in str(row["message"]) for row in rows)
    assert told == f"{list(readiness.PARTS)} [] False"


@pytest.mark.parametrize("at", [0, 8_999])  # among the lines that a schema is chosen by, and at the end
def test_a_line_that_is_no_json_is_told_while_others_compile(at: int, tmp_path: Path) -> None:
    rows = [orjson.dumps({"ts": f"2026-01-01T00:{n // 60 % 60:02}:{n % 60:02}Z", "m": "x" * 500}) for n in range(9_000)]
    rows[at] = rows[at][:40]
    (tmp_path / "rows.ndjson").write_bytes(b"\n".join(rows))
    complaint, told = run(REFUSED, tmp_path)
    assert complaint == f"bad JSON: the line ends too early {at + 1} 41"
    assert told == f"{list(readiness.PARTS)} [] False"


def test_tasks_of_spark_read_lines_while_others_compile(tmp_path: Path) -> None:
    rows = [
        orjson.dumps({"ts": f"2026-01-01T00:{n // 60 % 60:02}:{n % 60:02}Z", "n": n, "a": [n]}) for n in range(9_000)
    ]
    wrong = orjson.dumps({"ts": None, "n": 1})
    (tmp_path / "rows.ndjson").write_bytes(b"\n".join([*rows[:5_000], wrong, *rows[5_000:]]))
    count, told = run(LOADED, tmp_path)
    assert count == f"{len(rows)} {[(5_001, wrong.decode())]}"
    assert told == f"{list(readiness.PARTS)} [] False"


def test_loops_are_ready_once_every_part_has_left_its_mark(tmp_path: Path) -> None:
    script = "from tidelake.runtime import readiness; readiness._begin = print; print(readiness.has_loops())"

    def asked() -> str:
        found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=fresh(tmp_path))
        return found.stdout.splitlines()[-1]

    assert asked() == "False"
    for part in readiness.PARTS:
        assert asked() == "False"
        readiness.mark(tmp_path, part).touch()
    assert asked() == "True"


def test_a_part_is_compiled_by_one_process_and_marked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    monkeypatch.setattr(warm_up, "mark_folder", lambda: tmp_path)

    def is_done(part: str) -> bool:
        done.append(part)
        return True

    monkeypatch.setattr(warm_up, "_is_done_quietly", is_done)
    lock = readiness.mark(tmp_path, "json").with_suffix(".lock")
    with warm_up._alone(lock):
        warm_up.main("json")  # somebody is at it
    assert (done, readiness.mark(tmp_path, "json").exists()) == ([], False)
    warm_up.main("json")
    warm_up.main("json")
    assert (done, readiness.mark(tmp_path, "json").exists()) == (["json"], True)


def test_what_is_not_compiled_quietly_in_time_is_compiled_as_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    monkeypatch.setattr(warm_up, "mark_folder", lambda: tmp_path)
    monkeypatch.setitem(warm_up._WORK, "json", lambda: done.append("json"))
    monkeypatch.setattr(warm_up, "QUIET_S", 0.2)  # python does not even start in that
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    warm_up.main("json")
    assert (done, readiness.mark(tmp_path, "json").exists()) == (["json"], True)
    assert not list(tmp_path.glob("tidelake-warm-up-*"))  # of the process that was ended


@pytest.mark.parametrize("part", readiness.PARTS)
def test_what_is_done_to_compile_can_be_done(part: str) -> None:
    warm_up._WORK[part]()
