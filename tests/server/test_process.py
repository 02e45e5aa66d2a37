"""Start and stop a server: settings, mistakes, who is let in, and that nothing which was taken is lost."""

from __future__ import annotations

import json
import socket
import threading
import time
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner, Result

import tidelake
from tests.support.serving import serving
from tidelake.cli.main import main
from tidelake.server.settings import Mistakes, ServeSettings, read_settings

ROW = b'{"ts": "2026-01-01T00:00:00Z", "n": 1}'


def test_settings_come_from_a_file_the_environment_and_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "serve.toml"
    file.write_text('port = 1\notlp_port = 2\nlake = "here"\ncreate_tables = false\n')
    environment = {"TIDELAKE_SERVE_PORT": "3", "TIDELAKE_SERVE_DEADLINE_S": "2.5", "OTHER": "x"}
    found = read_settings(str(file), environment, {"lake": "there", "host": None})
    assert found == ServeSettings(lake="there", port=3, otlp_port=2, create_tables=False, deadline_s=2.5)


def test_every_mistake_has_a_line(tmp_path: Path) -> None:
    file = tmp_path / "serve.toml"
    file.write_text('prot = 1\nport = "80"\nlinger_ms = 500\ntls_key = "nowhere"\n')
    with pytest.raises(Mistakes) as raised:
        read_settings(str(file), {"TIDELAKE_SERVE_TOKENS": "never"}, {"otlp_port": 70_000})
    assert raised.value.lines == [
        f"{file}: there is no setting 'prot'",
        f"{file}: port = '80' is not a whole number",
        "otlp_port = 70000: a port is 0 to 65535",
        "tokens = 'never': it is auto, required or off",
        "linger_ms = 500: it is 0 to 200",
        "tls_certificate and tls_key go together",
        "tls_key: there is no file 'nowhere'",
    ]


def test_what_cannot_be_served_with_is_told_before_anything_is_started(tmp_path: Path) -> None:
    pem = tmp_path / "some.pem"
    pem.write_text("no certificate")
    told = {"tls_certificate": str(pem), "tls_key": str(pem), "kafka": "b:1", "kafka_topics": "a=x.y, a=x.z"}
    with pytest.raises(Mistakes) as raised:
        read_settings(None, {}, told)
    assert raised.value.lines == [
        "tls_certificate and tls_key: not a certificate and its key, as PEM without a password: SSLError",
        "kafka_topics: a topic is named twice topic=a",
    ]
    options = ("--kafka", "127.0.0.1:9", "--kafka-topics", "a=x.y", "--port", "0", "--otlp-port", "0")
    environment = {"TIDELAKE_SERVE_KAFKA_OPTIONS": "sasl.pasword=secret", "TIDELAKE_SERVE_FLIGHT_PORT": "0"}
    ran = CliRunner().invoke(main, ["serve", "--lake", str(tmp_path / "lake"), *options], env=environment)
    assert (ran.exit_code, ran.stderr.splitlines()[-1]) == (
        1,
        'tidelake: bad options of Kafka\'s client reason=No such configuration property: "sasl.pasword"',
    )


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["serve", *arguments])


def test_mistakes_and_ports_that_are_taken_are_told_in_lines(tmp_path: Path) -> None:
    ran = run("--lake", str(tmp_path / "lake"), "--port", "-1", "--config", str(tmp_path / "none.toml"))
    assert (ran.exit_code, ran.stderr.splitlines()) == (
        1,
        [
            f"tidelake: {tmp_path}/none.toml: cannot be read: FileNotFoundError",
            "tidelake: port = -1: a port is 0 to 65535",
        ],
    )
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ran = run("--lake", str(tmp_path / "lake"), "--port", str(port), "--otlp-port", "0")
    assert (ran.exit_code, ran.stderr) == (
        1,
        f"tidelake: cannot listen host=127.0.0.1 port={port} reason=Address already in use\n",
    )


def test_beyond_this_machine_it_needs_tokens_or_to_be_told_twice(tmp_path: Path) -> None:
    where = str(tmp_path / "lake")
    for options in ([], ["--tokens", "off"], ["--open"]):
        ran = run("--lake", where, "--host", "0.0.0.0", "--port", "0", "--otlp-port", "0", *options)
        assert ran.exit_code == 1, options
        assert "tokens" in ran.stderr
    with serving(where, "--host", "0.0.0.0", "--tokens", "off", "--open") as served:
        assert served.url.startswith("http://0.0.0.0:")


def test_what_is_under_way_is_answered_before_it_stops(tmp_path: Path) -> None:
    where = tmp_path / "lake"
    answers: list[httpx.Response] = []
    with serving(where, environment={"TIDELAKE_SERVE_LINGER_MS": "200"}) as served, served.client() as client:
        client.post("/v1/ingest/obs.logs", content=ROW)

        def send() -> None:
            answers.append(client.post("/v1/ingest/obs.logs", content=ROW))

        threads = [threading.Thread(target=send) for _ in range(20)]
        for thread in threads:
            thread.start()
        time.sleep(0.1)
        assert served.stop() == 0
        for thread in threads:
            thread.join()
    taken = [answer for answer in answers if answer.status_code == 200]
    with tidelake.connect(where) as lake:
        assert len(lake.table("obs.logs")) == 1 + len(taken)
    told = [json.loads(line)["message"] for line in served.said if line.startswith("{")]
    assert told[-2:] == ["stopping", "stopped"]


def test_what_it_does_is_told_in_spans_of_its_own(tmp_path: Path) -> None:
    where = tmp_path / "lake"
    with serving(where, environment={"TIDELAKE_SERVE_OWN_TRACES": "ops.spans"}) as served, served.client() as client:
        for _ in range(3):
            assert client.post("/v1/ingest/obs.logs", content=ROW).status_code == 200
        assert client.post("/v1/ingest/obs.logs", content=b"{").status_code == 400
        assert served.stop() == 0
    with tidelake.connect(where, upkeep=False) as lake:
        asked = "select name, kind, status_code, count(*) n from ops.spans group by all order by name, status_code"
        assert lake.sql(asked).to_arrow().to_pylist() == [
            {"name": "commit", "kind": "INTERNAL", "status_code": "ERROR", "n": 1},
            {"name": "commit", "kind": "INTERNAL", "status_code": "OK", "n": 3},
            {"name": "rows request", "kind": "SERVER", "status_code": "OK", "n": 4},
        ]
        (row,) = (
            lake.sql("select sum(attributes.rows) r, min(duration_nano) d, count(distinct span_id) s from ops.spans")
            .to_arrow()
            .to_pylist()
        )
        assert (row["r"], row["d"] > 0, row["s"]) == (3, True, 8)


def test_headers_are_bounded(tmp_path: Path) -> None:
    with serving(tmp_path / "lake") as served:
        host, port = served.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=30) as connection:
            connection.sendall(b"GET /healthz HTTP/1.1\r\nhost: x\r\nx-long: ")
            answer = b""
            try:
                for _ in range(100):
                    connection.sendall(b"a" * (64 << 10))
            except OSError:
                pass
            try:
                answer = connection.recv(100)
            except OSError:
                answer = b"HTTP/1.1 400"
        assert answer.startswith(b"HTTP/1.1 400")
        with served.client() as client:
            assert client.get("/healthz").status_code == 200
            assert client.get("/healthz", headers={"x": "a" * 20_000}).status_code == 200


def test_without_room_it_says_to_come_again_and_recovers(tmp_path: Path) -> None:
    environment = {"TIDELAKE_SERVE_MEMORY_BYTES": str(1 << 20), "TIDELAKE_SERVE_TABLE_MEMORY_BYTES": str(1 << 20)}
    line = json.dumps({"ts": "2026-01-01T00:00:00Z", "text": "x" * 1000}).encode() + b"\n"
    with serving(tmp_path / "lake", environment=environment) as served, served.client() as client:
        client.post("/v1/ingest/obs.logs", content=line)
        answers: list[httpx.Response] = []

        def send() -> None:
            answers.append(client.post("/v1/ingest/obs.logs", content=line * 700))

        threads = [threading.Thread(target=send) for _ in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert {answer.status_code for answer in answers} == {200, 503}
        refused = next(answer for answer in answers if answer.status_code == 503)
        assert refused.headers["retry-after"] == "1"
        assert client.post("/v1/ingest/obs.logs", content=line * 700).status_code == 200
        taken = sum(answer.status_code == 200 for answer in answers) + 1
    with tidelake.connect(tmp_path / "lake") as lake:
        assert len(lake.table("obs.logs")) == 1 + 700 * taken
