"""Show that a lake can be used in a forked child, leaves nothing behind when it is dropped, and bounds what it reads.

Children are real forks; whatever they find comes back through their exit or a pipe. It does not test catalogs that are
shared by processes: see ``test_catalog_processes``.
"""

from __future__ import annotations

import gc
import gzip
import multiprocessing
import os
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import tidelake
from tests.support.servers import S3Server
from tidelake.errors import InvalidInputError
from tidelake.ingest.text_encoding import MAX_LINE_BYTES

ENDS_WITHIN_S = 120
ROWS = [{"ts": "2026-03-14T12:00:00Z", "n": 1}] * 1500
SCHEMA = {"ts": "timestamp", "n": "long"}


def test_a_child_forked_after_a_bucket_was_used_goes_on_and_leaves_its_parent_alone(s3: S3Server) -> None:
    where = f"log:s3://{s3.bucket}/fork-{secrets.token_hex(4)}"
    login: dict[str, Any] = {"endpoint": s3.endpoint, "key": s3.key, "secret": s3.secret}
    with tidelake.connect(where, **login) as lake:
        table = lake.create_table("t", SCHEMA)
        table.append(ROWS)

        def work() -> None:
            assert _count(table) == 1500
            table.append(ROWS)
            with tidelake.connect(where, **login) as own:
                assert _count(own.table("t")) == 3000
            _in_child(lambda: table.append(ROWS))  # and its own child likewise

        _in_child(work)
        table.append(ROWS)
        assert _count(table) == 6000


def test_a_child_forked_while_others_commit_goes_on(tmp_path: Path) -> None:
    """The locks that the parent's threads hold at that moment are not held in the child."""
    for where in (str(tmp_path / "lake"), f"log:{tmp_path / 'log'}"):
        with tidelake.connect(where) as lake:
            table = lake.create_table("t", SCHEMA, flush_age="off")
            table.append(ROWS[:3])  # a module that another thread is importing cannot be imported in a child
            done = threading.Event()

            def write(table: tidelake.Table = table, done: threading.Event = done) -> None:
                while not done.is_set():
                    table.append(ROWS[:3])

            writers = [threading.Thread(target=write) for _ in range(3)]
            for writer in writers:
                writer.start()
            try:
                for _ in range(3):
                    _in_child(lambda table=table: table.append(ROWS[:1], key=secrets.token_hex(4)))  # type: ignore[misc]
            finally:
                done.set()
                for writer in writers:
                    writer.join()
            assert _count(table) % 3 == 0


def test_a_memory_store_is_read_in_a_child(s3: S3Server) -> None:
    from tidelake.objects import open_store

    s3.open("used").put("a", b"so that its threads run")
    store = open_store("memory://")
    store.put("a", b"1")

    def read() -> None:
        assert store.get("a").to_pybytes() == b"1"
        assert [meta.key for meta in store.list()] == ["a"]

    _in_child(read)


def test_a_lake_that_is_dropped_leaves_no_thread_and_no_descriptor(tmp_path: Path) -> None:
    def use(number: int) -> None:
        lake = tidelake.connect(tmp_path / f"lake-{number}")
        table = lake.create_table("t", SCHEMA)
        table.append(ROWS[:3])
        assert _count(table) == 3

    before = _flushers()
    for number in range(5):
        use(number)
    _wait_until(lambda: _flushers() <= before)
    gc.collect()
    assert _open_files(tmp_path) == []


def test_a_table_goes_on_when_its_lake_is_dropped(tmp_path: Path) -> None:
    table = tidelake.connect(tmp_path).create_table("t", SCHEMA, flush_age="1s")
    gc.collect()
    table.append(ROWS[:3])
    assert _count(table) == 3
    _wait_until(lambda: table.snapshot.totals.hot_rows == 0)  # the flush in the background goes on too
    assert _count(table) == 3


def test_an_endless_line_of_a_small_file_is_refused(tmp_path: Path) -> None:
    paths = [tmp_path / f"line.{kind}.gz" for kind in ("ndjson", "log", "csv")]
    with gzip.open(paths[0], "wb", compresslevel=1) as file:
        file.write(b'{"ts":"2026-03-14T12:00:00Z","text":"')
        for _ in range((MAX_LINE_BYTES >> 20) + 17):
            file.write(b"x" * (1 << 20))
    assert paths[0].stat().st_size < 2 << 20
    for path in paths[1:]:
        path.hardlink_to(paths[0])
    code = """
import resource, sys
import tidelake
table = tidelake.connect(sys.argv[1]).create_table("t", {"ts": "timestamp", "text": "string"})
resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
for path in sys.argv[2:]:
    try:
        table.append(path)
    except tidelake.TidelakeError as error:
        print(error.kind)
"""
    command = [sys.executable, "-c", code, str(tmp_path / "lake"), *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split()) == (0, ["too_long", "too_long", "bad_csv"]), done.stderr[-2000:]


def test_a_long_line_goes_in(tmp_path: Path) -> None:
    text = "x" * (20 << 20)
    (tmp_path / "long.ndjson").write_text(f'{{"ts":"2026-03-14T12:00:00Z","text":"{text}"}}\n')
    with tidelake.connect(tmp_path / "lake") as lake:
        lake.ingest("t", tmp_path / "long.ndjson")
        assert lake.table("t").scan(columns=["text"]).read_all()["text"].to_pylist() == [text]


def test_a_line_that_is_too_long_says_where_and_how_long_it_may_be(tmp_path: Path) -> None:
    line = b'{"ts":"2026-03-14T12:00:00Z","text":"' + b"x" * (MAX_LINE_BYTES + (9 << 20))
    with tidelake.connect(tmp_path / "lake") as lake:
        table = lake.create_table("t", {"ts": "timestamp", "text": "string"})
        with pytest.raises(InvalidInputError, match=f"a line is too long.*line=2 limit_bytes={MAX_LINE_BYTES}"):
            table.append(b'{"ts":"2026-03-14T12:00:00Z","text":"a"}\n' + line)
        assert table.snapshot.totals.rows == 0


def _count(table: tidelake.Table) -> int:
    return int(table.scan(columns=["n"]).read_all().num_rows)


def _in_child(work: Callable[[], Any]) -> None:
    """Do something in a forked child, which must end well."""
    child = multiprocessing.get_context("fork").Process(target=work)
    child.start()
    child.join(ENDS_WITHIN_S)
    if child.exitcode is None:
        child.kill()
        pytest.fail("the child does not end")
    assert child.exitcode == 0


def _wait_until(is_so: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + ENDS_WITHIN_S
    while not is_so():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


def _flushers() -> set[threading.Thread]:
    """Collect what nobody holds, and return the flushers that still run."""
    gc.collect()
    return {thread for thread in threading.enumerate() if thread.name == "tidelake-flusher"}


def _open_files(folder: Path) -> list[str]:
    """List the files below a folder that this process has open."""
    found = []
    for descriptor in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # another thread has closed it
            found.append(os.readlink(f"/proc/self/fd/{descriptor}"))
    return [path for path in found if path.startswith(str(folder))]
