"""Several processes are one server: at one port, with one count of what they did, and none is missed when it ends."""

from __future__ import annotations

import json
import random
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil
import pytest
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families

import tidelake
from tests.support.pressing import Press
from tests.support.servers import free_ports
from tests.support.serving import Served, make_certificate, serving
from tidelake.cli.main import main
from tidelake.server.buckets import NEIGHBOURS, SLOTS, Buckets
from tidelake.server.meters import summed
from tidelake.server.settings import ServeSettings
from tidelake.server.siblings import share_of

ROW = b'{"ts": "2026-01-01T00:00:00Z", "n": 1}'
TWO = ("--processes", "2")
RATE = 5
WITHIN_S = 60


@dataclass(frozen=True, slots=True)
class Two:
    """A server of two processes with TLS, and its tokens: one for everything, one with a rate."""

    served: Served
    other: psutil.Process
    trusted: ssl.SSLContext
    admin: str
    rated: str

    def client(self, token: str | None = None) -> httpx.Client:
        """Return a client with a connection of its own, and so one of either process."""
        headers = {"authorization": f"Bearer {token or self.admin}"}
        return httpx.Client(base_url=self.served.url, headers=headers, verify=self.trusted, timeout=120)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Two]:
    folder = tmp_path_factory.mktemp("two")
    lake, key, certificate = str(folder / "lake"), str(folder / "key.pem"), str(folder / "cert.pem")
    make_certificate(key, certificate)
    admin = token_for(lake, "--role", "admin")
    rated = token_for(lake, "--role", "write", "--rate-requests", str(RATE))
    trusted = ssl.create_default_context(cafile=certificate)
    with serving(lake, *TWO, "--tls-certificate", certificate, "--tls-key", key) as served:
        (other,) = processes_of(served)
        yield Two(served, other, trusted, admin, rated)
        assert served.stop() == 0
        assert not other.is_running()
    assert [line for line in served.said if '"error"' in line] == []


def token_for(lake: str, *options: str) -> str:
    """Make a token."""
    made = CliRunner().invoke(main, ["--lake", lake, "tokens", "create", "agent", *options])
    assert made.exit_code == 0, made.output
    return made.stdout.splitlines()[-1].strip()


def processes_of(served: Served) -> list[psutil.Process]:
    """Return the processes that a server has started to serve beside the first."""
    found = []
    for each in psutil.Process(served.process.pid).children():
        with suppress(psutil.Error):  # it ends just now
            found += [each] if "tidelake.server.sibling" in each.cmdline() else []
    return found


def until(is_so: Callable[[], object], within_s: float = WITHIN_S) -> None:
    """Wait for something to be so."""
    end_s = time.monotonic() + within_s
    while not is_so():
        assert time.monotonic() < end_s
        time.sleep(0.02)


def until_others_run(served: Served, before: list[psutil.Process]) -> None:
    """Wait until a server has started other processes than those that it had before."""
    until(lambda: {each.pid for each in processes_of(served)} - {each.pid for each in before})


def sent_by_many(two: Two, count: int, token: str | None = None) -> list[int]:
    """Send a row by each of many connections, which the system spreads; return what each was answered."""

    def send(_: int) -> int:
        with two.client(token) as client:
            return client.post("/v1/ingest/obs.logs", content=ROW).status_code

    with ThreadPoolExecutor(4) as threads:
        return list(threads.map(send, range(count)))


def rows_taken(text: str) -> float:
    """Return how many rows were acknowledged, by what is at /metrics."""
    samples = [each for family in text_string_to_metric_families(text) for each in family.samples]
    return sum(each.value for each in samples if each.name == "tidelake_rows_total")


def test_processes_count_and_tell_as_one(two: Two) -> None:
    assert sent_by_many(two, 40) == [200] * 40
    requests = "select count(*) n from system.requests where protocol = 'rows' and status = 200"
    for _ in range(4):  # whichever is asked
        with two.client() as client:
            assert rows_taken(client.get("/metrics").text) == 40
            assert client.post("/v1/query", json={"sql": requests}).json() == [{"n": 40}]
            assert client.post("/v1/query", json={"sql": "select count(*) n from obs.logs"}).json() == [{"n": 40}]
            assert client.get("/readyz").status_code == 200
    assert two.other.num_threads() > 1


def test_rows_that_one_process_took_are_told_to_those_who_follow_another(two: Two) -> None:
    def follow(began: threading.Barrier) -> str:
        with two.client() as client, client.stream("GET", "/v1/tail", params={"table": "obs.followed"}) as answer:
            began.wait(WITHIN_S)
            return next(line for line in answer.iter_lines() if line.startswith("data: {"))

    with two.client() as client:
        client.post("/v1/ingest/obs.followed", content=ROW)
        began = threading.Barrier(5)
        with ThreadPoolExecutor(4) as threads:
            told = [threads.submit(follow, began) for _ in range(4)]
            began.wait(WITHIN_S)
            client.post("/v1/ingest/obs.followed", content=ROW.replace(b'"n": 1', b'"n": 2'))
            assert [[row["n"] for row in json.loads(each.result()[6:])["rows"]] for each in told] == [[2]] * 4


def test_a_question_is_seen_and_stopped_by_whichever_process_is_asked(two: Two) -> None:
    slow = {"sql": "select count(*) from range(100000000) a, range(100000) b"}

    def ask(_: int) -> httpx.Response:
        with two.client() as client:
            return client.post("/v1/query", json=slow)

    def seen() -> list[str]:
        with two.client() as client:  # another connection each time, and so any of the processes
            return [each["id"] for each in client.get("/v1/queries").json()["queries"]]

    with ThreadPoolExecutor(2) as threads:
        answers = threads.map(ask, range(2))
        until(lambda: len(seen()) == 2)
        for id_ in seen():
            with two.client() as client:
                assert client.delete(f"/v1/queries/{id_}").json() == {"stopped": id_}
                assert client.delete("/v1/queries/none").status_code == 404
        assert all(answer.status_code != 200 or "stopped" in answer.text for answer in answers)
    until(lambda: not seen())


def test_tokens_and_rates_are_those_of_all_processes(two: Two) -> None:
    assert sent_by_many(two, 8, "tl_000000000000_none") == [401] * 8
    began_s = time.monotonic()
    statuses = sent_by_many(two, 40, two.rated)
    assert set(statuses) == {200, 503}
    assert statuses.count(200) <= RATE * (2 + time.monotonic() - began_s)


@pytest.mark.parametrize(
    ("kills", "seed"), [(1, None), *(pytest.param(20, seed, marks=pytest.mark.torture) for seed in range(3))]
)
def test_what_was_acknowledged_is_there_once_whichever_process_is_killed(
    tmp_path: Path, kills: int, seed: int | None
) -> None:
    folder, chance, port = tmp_path / "lake", random.Random(seed), free_ports(1)[0]
    is_short = seed is None  # then both are killed, one after the other
    press = Press(f"http://127.0.0.1:{port}", 1 if is_short else 2)
    left: list[psutil.Process] = []
    with press.at_work():
        for _ in range(kills):
            with serving(folder, *TWO, port=port) as served:
                press.wait_for_all()
                time.sleep(chance.random() * 0.3)
                others = left = processes_of(served)
                if is_short or chance.random() < 0.7:
                    for each in others:
                        each.kill()
                if is_short:
                    until_others_run(served, others)
                    left = processes_of(served)
                    press.wait_for_all()  # those for it wait until it is there again
                if is_short or chance.random() < 0.7:
                    served.kill()
        with serving(folder, *TWO, port=port):
            press.wait_for_all()
            psutil.wait_procs(left, timeout=WITHIN_S)
            assert not any(each.is_running() for each in left)
    assert not is_short or served.says("is started again")
    with tidelake.connect(folder, upkeep=False) as lake:
        press.check(lake)


def test_a_port_that_is_taken_is_told_whatever_the_number_of_processes(tmp_path: Path) -> None:
    options = ["serve", "--lake", str(tmp_path / "lake"), *TWO]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        ran = CliRunner().invoke(main, [*options, "--port", port, "--otlp-port", "0", "--flight-port", "0"])
        assert (ran.exit_code, ran.stderr) == (
            1,
            f"tidelake: cannot listen host=127.0.0.1 port={port} reason=Address already in use\n",
        )
        ran = CliRunner().invoke(main, [*options, "--port", "0", "--otlp-port", port, "--flight-port", "0"])
        assert (ran.exit_code, ran.stderr) == (
            1,
            f"tidelake: cannot listen for OTLP host=127.0.0.1 port={port} reason=Address already in use\n",
        )
    ran = CliRunner().invoke(main, ["serve", "--lake", str(tmp_path / "lake"), "--processes", "0"])
    assert (ran.exit_code, ran.stderr) == (1, "tidelake: processes = 0: it is 1 to 64\n")


def test_what_a_process_may_hold_is_its_share_and_a_body_fits_in_it() -> None:
    alone = ServeSettings()
    assert share_of(alone) is alone
    of_eight = share_of(ServeSettings(processes=8))
    assert (of_eight.memory_bytes, of_eight.table_memory_bytes) == (32 << 20, 16 << 20)
    assert (of_eight.max_body_bytes, of_eight.result_cache_bytes) == (16 << 20, 8 << 20)


def test_meters_of_processes_are_summed() -> None:
    one = '# HELP a_total A.\n# TYPE a_total counter\na_total{x="1 2"} 1.0\n# HELP b B.\n# TYPE b gauge\nb 5.0\n'
    two = '# HELP a_total A.\n# TYPE a_total counter\na_total{x="1 2"} 2.0\na_total{x="3"} 4.0\n'
    assert summed([one]) == one
    assert summed([one, two]) == (
        '# HELP a_total A.\n# TYPE a_total counter\na_total{x="1 2"} 3.0\na_total{x="3"} 4.0\n'
        "# HELP b B.\n# TYPE b gauge\nb 5.0\n"
    )


def test_buckets_of_a_file_are_shared_and_fill_again(tmp_path: Path) -> None:
    now_s = [100.0]
    one, two = (Buckets(tmp_path / "buckets", lambda: now_s[0]) for _ in range(2))
    assert [each.take("a", 3, 1) for each in (one, two, one, two)] == [True, True, True, False]
    assert two.take("b", 3, 1)
    now_s[0] += 1 / 3
    assert [each.take("a", 3, 1) for each in (two, one)] == [True, False]
    now_s[0] += 10
    assert one.take("a", 3, 300)  # larger than the bucket, which was full
    now_s[0] += 50
    assert not two.take("a", 3, 1)
    two.take("a", 3, 3, refuses=False)
    now_s[0] += 51
    assert two.take("a", 3, 1)
    for each in (one, two):
        each.close()


def test_more_names_than_slots_forget_those_that_were_touched_longest_ago() -> None:
    now_s = [1.0]
    buckets = Buckets(clock_s=lambda: now_s[0])
    for number in range(SLOTS * 2):
        now_s[0] += 0.001
        assert buckets.take(str(number), 1, 1)
    newest = str(SLOTS * 2 - 1)
    assert not buckets.take(newest, 1, 1)
    forgotten = sum(buckets.take(str(number), 1, 1, refuses=True) for number in range(NEIGHBOURS))
    assert forgotten > 0
