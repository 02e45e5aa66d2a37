"""Several processes are one server: at one port, with one count of what they did, and none is missed when it ends."""

from __future__ import annotations

import json
import random
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import psutil
import pytest
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families

import tidelake
from tests.support.pressing import Press
from tests.support.servers import free_ports
from tests.support.serving import Served, serving
from tidelake.cli.main import main
from tidelake.server.buckets import NEIGHBOURS, SLOTS, Buckets
from tidelake.server.meters import summed

ROW = b'{"ts": "2026-01-01T00:00:00Z", "n": 1}'
TWO = ("--processes", "2")
WITHIN_S = 30


def processes_of(served: Served) -> list[psutil.Process]:
    """Return the processes that a server has started to serve beside the first."""
    found = psutil.Process(served.process.pid).children()
    return [each for each in found if "tidelake.server.sibling" in each.cmdline()]


def until(is_so: object, within_s: float = WITHIN_S) -> None:
    """Wait for something to be so."""
    end_s = time.monotonic() + within_s
    while not is_so():  # type: ignore[operator]
        assert time.monotonic() < end_s
        time.sleep(0.02)


def sent_by_many(served: Served, count: int) -> int:
    """Send a row by each of many connections, which the system spreads; return how many were taken."""

    def send(_: int) -> int:
        with served.client() as client:
            return int(client.post("/v1/ingest/obs.logs", content=ROW).status_code == 200)

    with ThreadPoolExecutor(4) as threads:
        return sum(threads.map(send, range(count)))


def meters_of(served: Served) -> dict[tuple[str, str], float]:
    """Return the samples at /metrics."""
    text = httpx.get(f"{served.url}/metrics").text
    return {
        (each.name, json.dumps(each.labels, sort_keys=True)): each.value
        for family in text_string_to_metric_families(text)
        for each in family.samples
    }


def test_processes_count_and_tell_as_one(tmp_path: Path) -> None:
    with serving(tmp_path / "lake", *TWO) as served:
        (other,) = processes_of(served)
        assert sent_by_many(served, 40) == 40
        taken = sum(value for (name, _), value in meters_of(served).items() if name == "tidelake_rows_total")
        assert taken == 40
        with served.client() as client:
            told = client.post("/v1/query", json={"sql": "select count(*) n from system.requests where status = 200"})
            assert told.json()[0]["n"] >= 40
            asked = client.post("/v1/query", json={"sql": "select count(*) n from obs.logs"})
            assert asked.json() == [{"n": 40}]
        assert other.num_threads() > 1
        assert served.stop() == 0
        assert not other.is_running()
    assert [line for line in served.said if '"error"' in line] == []


def test_a_question_is_seen_and_stopped_by_whichever_process_is_asked(tmp_path: Path) -> None:
    slow = {"sql": "select count(*) from range(100000000) a, range(100000) b"}
    with serving(tmp_path / "lake", *TWO) as served:
        answers: list[httpx.Response] = []

        def ask() -> None:
            with served.client() as client:
                answers.append(client.post("/v1/query", json=slow))

        threads = [threading.Thread(target=ask) for _ in range(2)]
        for thread in threads:
            thread.start()

        def seen() -> list[str]:
            with served.client() as client:  # another connection each time, and so any of the processes
                return [each["id"] for each in client.get("/v1/queries").json()["queries"]]

        until(lambda: len(seen()) == 2)
        for id_ in seen():
            with served.client() as client:
                assert client.delete(f"/v1/queries/{id_}").json() == {"stopped": id_}
                assert client.delete("/v1/queries/none").status_code == 404
        for thread in threads:
            thread.join(WITHIN_S)
        assert len(answers) == 2
        assert all(answer.status_code != 200 or "stopped" in answer.text for answer in answers)
        until(lambda: not seen())


def test_a_process_that_ends_is_started_again_and_the_others_go_on(tmp_path: Path) -> None:
    with serving(tmp_path / "lake", *TWO) as served:
        (other,) = processes_of(served)
        other.kill()
        assert sent_by_many(served, 20) == 20  # those for it wait until it is there again
        until(lambda: [each.pid for each in processes_of(served)] not in ([], [other.pid]))
        assert served.stop() == 0
    assert any("is started again" in line for line in served.said)
    with tidelake.connect(tmp_path / "lake", upkeep=False) as lake:
        assert len(lake.table("obs.logs")) == 20


def test_processes_end_when_the_first_is_killed_and_give_the_port_free(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    with serving(tmp_path / "lake", *TWO, port=port) as served:
        (other,) = processes_of(served)
        assert sent_by_many(served, 10) == 10
        served.kill()
        with serving(tmp_path / "lake", *TWO, port=port) as again:
            assert sent_by_many(again, 10) == 10
        psutil.wait_procs([other], timeout=WITHIN_S)
        assert not other.is_running()
    with tidelake.connect(tmp_path / "lake", upkeep=False) as lake:
        assert len(lake.table("obs.logs")) == 20


@pytest.mark.parametrize(
    ("kills", "seed"), [(3, 1), *(pytest.param(20, seed, marks=pytest.mark.torture) for seed in range(3))]
)
def test_what_was_acknowledged_is_there_once_whichever_process_is_killed(tmp_path: Path, kills: int, seed: int) -> None:
    folder, chance, port = tmp_path / "lake", random.Random(seed), free_ports(1)[0]
    press = Press(f"http://127.0.0.1:{port}", 2)
    with press.at_work():
        for _ in range(kills):
            with serving(folder, *TWO, port=port) as served:
                press.wait_for_all()
                time.sleep(chance.random() * 0.3)
                others = processes_of(served)
                if chance.random() < 0.7:
                    for each in others:
                        each.kill()
                if chance.random() < 0.7:
                    served.kill()
        with serving(folder, *TWO, port=port):
            press.wait_for_all()
    with tidelake.connect(folder, upkeep=False) as lake:
        press.check(lake)


def test_a_rate_is_for_all_processes_together(tmp_path: Path) -> None:
    where = str(tmp_path / "lake")
    made = CliRunner().invoke(
        main, ["--lake", where, "tokens", "create", "a", "--role", "write", "--rate-requests", "5"]
    )
    token = made.stdout.splitlines()[-1].strip()
    with serving(where, *TWO) as served:

        def send(_: int) -> int:
            with served.client(token) as client:
                return client.post("/v1/ingest/obs.logs", content=ROW).status_code

        began_s = time.monotonic()
        with ThreadPoolExecutor(4) as threads:
            statuses = list(threads.map(send, range(40)))
        most = 5 * (2 + time.monotonic() - began_s)
    assert set(statuses) == {200, 503}
    assert statuses.count(200) <= most


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
