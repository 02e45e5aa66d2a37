"""Show that the servers of the tests are fresh, apart, and gone afterwards."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psycopg
import pytest

from tests.support.servers import fresh_database, postgres_server, seaweedfs_server
from tidelake.errors import StorageError


def is_up(url: str) -> bool:
    try:
        psycopg.connect(url, connect_timeout=2).close()
    except psycopg.OperationalError:
        return False
    return True


def test_postgres_databases_are_empty_and_apart(postgres: str, postgres_database: str) -> None:
    other = fresh_database(postgres)
    with psycopg.connect(postgres_database) as connection:
        connection.execute("CREATE TABLE t (n int)")
    with psycopg.connect(other) as connection:
        found = connection.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").fetchone()
    assert found == (0,)


def test_servers_are_gone_with_their_folders_after_use(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(prefix="tidelake-test-") as place:
        Path(place).chmod(0o755)
        monkeypatch.setattr(tempfile, "tempdir", place)
        with postgres_server() as url, seaweedfs_server() as server:
            store = server.open()
            store.put("key", b"x")
            assert is_up(url)
            assert len(os.listdir(place)) == 2
        assert os.listdir(place) == []
    assert not is_up(url)
    with pytest.raises(StorageError, match="cannot reach"):
        store.get("key")


CHILD = """
import time
from tests.support.servers import postgres_server
with postgres_server() as url:
    print(url, flush=True)
    time.sleep(600)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process of its parent's death")
def test_server_is_gone_when_its_test_run_is_killed() -> None:
    with tempfile.TemporaryDirectory(prefix="tidelake-test-") as place:
        Path(place).chmod(0o755)
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD], stdout=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": place}
        )
        assert child.stdout is not None
        url = child.stdout.readline().strip()
        assert is_up(url)
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        deadline = time.monotonic() + 10
        while is_up(url) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not is_up(url)
        time.sleep(0.5)  # its own children end after it, and write to the folder until then
