"""Hold what is pulled to this: every window once, with true times, and what failed is a gap until it is filled."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import orjson
import pytest

import tidelake
from tidelake.connectors import pulling, registry
from tidelake.connectors.fetching import Window, fetch
from tidelake.connectors.pulling import Puller
from tidelake.connectors.sources import define
from tidelake.lake import Lake

MINUTE_US = 60_000_000
T0 = 1_770_000_000_000_000 // MINUTE_US * MINUTE_US
Answer = tuple[int, dict[str, str], Any]


@contextmanager
def endpoint(answer: Callable[[str, dict[str, list[str]], Any], Answer]) -> Iterator[str]:
    """Run an HTTP server that answers as told: recorded shapes, for want of the servers themselves."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            status, headers, body = answer(parts.path, parse_qs(parts.query), self.headers)
            data = orjson.dumps(body)
            self.send_response(status)
            for name, value in {"Content-Length": str(len(data)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


def prometheus(path: str, asked: dict[str, list[str]], headers: Any) -> Answer:
    """Answer a range selector as Prometheus does: a sample every 15 s, from both ends of the range."""
    assert path == "/api/v1/query"
    assert asked["query"] == ['{job="x"}[61s]']
    end = float(asked["time"][0])
    times = [end - back for back in (0, 7.5, 22.5, 37.5, 52.5, 60, 61)]
    series = {
        "metric": {"__name__": "up", "job": "x"},
        "values": [[each, "1.5"] for each in times] + [[end - 1, "NaN"]],
    }
    return 200, {}, {"status": "success", "data": {"resultType": "matrix", "result": [series]}}


def pulled(lake: Lake, url: str, name: str = "m", **options: Any) -> Puller:
    """Define a source that was made at a time of ours."""
    define(lake.handle, url, into=name, options=options)
    held = registry.change(lake.store, name, lambda held: replace(held, created_us=T0))
    return Puller(lake.handle, held, threading.Event())


def test_samples_of_prometheus_have_their_true_times_and_each_window_is_pulled_once(lake: Lake) -> None:
    with endpoint(prometheus) as where:
        puller = pulled(lake, f"prometheus://{where}", selector='{job="x"}')
        assert sum(puller.pull(window, moves=True) for window in puller.due(T0 + MINUTE_US)) == 2 * 6
        assert list(puller.due(T0 + MINUTE_US)) == []
    rows = lake.table("m.samples").to_arrow(dynamic="json").to_pylist()
    seconds = sorted({row["ts"].timestamp() - T0 / 1e6 for row in rows})
    assert seconds == [-60, -52.5, -37.5, -22.5, -7.5, -1, 0, 7.5, 22.5, 37.5, 52.5, 59]
    assert {(row["name"], row["labels"]) for row in rows} == {("up", '{"job":"x"}')}
    assert lake.promql("up", time=T0 / 1e6 - 5, table={"table": "m.samples"}).to_arrow().num_rows == 1


def test_a_window_that_failed_is_a_gap_until_it_is_filled(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulling, "PAUSE_S", 0.0)
    is_down = [True]

    def answer(path: str, asked: dict[str, list[str]], headers: Any) -> Answer:
        if is_down[0] and T0 <= float(asked["time"][0]) * 1e6 - MINUTE_US < T0 + 2 * MINUTE_US:
            return 503, {}, {}
        return prometheus(path, asked, headers)

    with endpoint(answer) as where:
        puller = pulled(lake, f"prometheus://{where}", selector='{job="x"}')
        for window in puller.due(T0 + 4 * MINUTE_US):
            puller.pull(window, moves=True)
        assert puller.failed == 2
        gaps = lake.table("m.samples").coverage.gaps().to_pylist()
        assert [(gap["start"].timestamp() * 1e6, gap["buckets"]) for gap in gaps] == [(T0, 2)]
        assert lake.source("m").run(only_missing=True).changes == 0
        is_down[0] = False
        assert lake.source("m").run(only_missing=True).changes == 12
        assert lake.table("m.samples").coverage.gaps().num_rows == 0
        assert lake.source("m").run(only_missing=True).changes == 0
    assert len(lake.table("m.samples")) == 5 * 6


def sentry(path: str, asked: dict[str, list[str]], headers: Any) -> Answer:
    """Answer as Sentry's list of events does: pages by the header Link, which also says when there is no more."""
    if headers["Authorization"] != "Bearer s3cret":
        return 401, {}, {"detail": "Invalid token"}
    page = int(asked.get("cursor", ["0:0:0"])[0].split(":")[1])
    at = asked["start"][0]
    more = "true" if page < 2 else "false"
    links = (
        f'<{path}?start={at}&cursor=0:{page - 1}:1>; rel="previous"; results="false"; cursor="0:{page - 1}:1", '
        f'<{path}?start={at}&cursor=0:{page + 1}:0>; rel="next"; results="{more}"; cursor="0:{page + 1}:0"'
    )
    events = [{"id": f"{at}-{page}-{n}", "timestamp": at, "title": "boom", "tags": {"level": "error"}} for n in (1, 2)]
    return 200, {"Link": links}, {"data": events, "meta": {}}


def test_pages_of_a_json_endpoint_are_followed_by_their_links(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SENTRY_TOKEN", "s3cret")
    with endpoint(sentry) as where:
        url = f"http://{where}/api/0/organizations/acme/events/?start={{start}}&end={{end}}"
        headers = {"Authorization": "Bearer ${SENTRY_TOKEN}"}
        puller = pulled(lake, url, "sentry", headers=headers, rows="data", time="timestamp")
        windows = list(puller.due(T0 + MINUTE_US))
        assert [puller.pull(window, moves=True) for window in windows] == [6, 6]
        assert len(set(lake.table("sentry.rows").to_arrow().column("id").to_pylist())) == 12
        monkeypatch.setenv("SENTRY_TOKEN", "revoked")
        with pytest.raises(tidelake.InvalidInputError, match="credentials"):
            lake.source("sentry").run()
    assert lake.source("sentry").definition.state == "disabled"
    assert "s3cret" not in str(lake.sources().to_pylist())
    stored = b"".join(bytes(lake.store.get(meta.key)) for meta in lake.store.list("_sources"))
    assert b"s3cret" not in stored


def test_events_of_sentry_are_pulled_by_its_address_alone(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SENTRY_TOKEN", "s3cret")
    asked_for: list[dict[str, list[str]]] = []

    def answer(path: str, asked: dict[str, list[str]], headers: Any) -> Answer:
        assert path == "/api/0/organizations/acme/events/"
        asked_for.append(asked)
        return sentry(path, asked, headers)

    with endpoint(answer) as where:
        puller = pulled(lake, f"sentry+http://{where}/acme", "errors", query="level:error", fields="id,timestamp,title")
        windows = list(puller.due(T0 + MINUTE_US))
        assert [puller.pull(window, moves=True) for window in windows] == [6, 6]
        assert list(puller.due(T0 + MINUTE_US)) == []
        assert len(set(lake.table("errors.events").to_arrow().column("id").to_pylist())) == 12
        first = asked_for[0]
        assert (first["field"], first["query"]) == (["id", "timestamp", "title"], ["level:error"])
        monkeypatch.delenv("SENTRY_TOKEN")
        with pytest.raises(tidelake.InvalidInputError, match="SENTRY_TOKEN"):
            lake.source("errors").run()
    for bad in ("sentry://host", "sentry://host/a/b"):
        with pytest.raises(tidelake.InvalidInputError, match="sentry://host/organization"):
            lake.sync(bad, into="bad")
    with pytest.raises(tidelake.InvalidInputError, match="name a variable"):
        lake.sync("sentry://host/acme", into="bad", token="abc")


def test_pages_by_a_cursor_in_the_answer(lake: Lake) -> None:
    def answer(path: str, asked: dict[str, list[str]], headers: Any) -> Answer:
        page = int(asked.get("after", ["0"])[0])
        row = {"ts": T0 / 1e6, "n": page}
        return 200, {}, {"items": [row], "paging": {"next": page + 1 if page < 3 else None}}

    with endpoint(answer) as where:
        puller = pulled(lake, f"http://{where}/x", rows="items", cursor="paging.next", cursor_parameter="after")
        assert puller.pull(Window(T0, T0 + MINUTE_US), moves=True) == 4


def test_endpoints_that_lead_elsewhere_or_answer_nonsense_are_refused(lake: Lake) -> None:
    answers: dict[str, Answer] = {
        "/redirect": (302, {"Location": "http://127.0.0.1:1/"}, {}),
        "/elsewhere": (200, {"Link": '<http://127.0.0.1:1/>; rel="next"'}, []),
        "/object": (200, {}, {"a": 1}),
    }
    with endpoint(lambda path, asked, headers: answers[path]) as where:
        for number, path in enumerate(answers):
            puller = pulled(lake, f"http://{where}{path}", f"n{number}")
            with pytest.raises(tidelake.InvalidInputError):
                fetch(puller._definition, Window(T0, T0 + MINUTE_US))
    for options in ({"schedule": "1ms"}, {"headers": {"Authorization": "Bearer abc"}}):
        with pytest.raises(tidelake.InvalidInputError):
            lake.sync("https://example.org/x", into="bad", **options)
    assert "bad" not in registry.names(lake.store)


def test_a_secret_that_cannot_be_sent_is_shown_nowhere(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_TOKEN", "s3cret\n")  # as of a file that was read whole
    with endpoint(prometheus) as where:
        with pytest.raises(tidelake.InvalidInputError, match="ends of lines") as refused:
            lake.sync(f"http://{where}/x", into="shop", headers={"Authorization": "Bearer ${SHOP_TOKEN}"})
        with pytest.raises(tidelake.InvalidInputError) as other:
            lake.sync(f"http://x:${{SHOP_TOKEN}}@{where}/x", into="other")
    for shown in (refused, other):
        assert "s3cret" not in "".join(traceback.format_exception(shown.value)) + repr(shown.value)
    assert lake.source("shop").definition.state == "disabled"
    assert "s3cret" not in str(lake.sources().to_pylist()) + repr(lake.source("shop").definition)


def test_a_secret_in_an_address_is_sent_as_it_is_whatever_characters_it_has(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_TOKEN", "a b&c=%20#")
    sent: list[str] = []

    def answer(path: str, asked: dict[str, list[str]], headers: Any) -> Answer:
        sent.extend(asked["token"])
        return 200, {}, []

    with endpoint(answer) as where:
        puller = pulled(lake, f"http://{where}/x?token=${{SHOP_TOKEN}}")
        puller.pull(Window(T0, T0 + MINUTE_US), moves=True)
    assert sent == ["a b&c=%20#"]


def test_answers_that_are_cut_off_or_refused_are_told_apart(lake: Lake) -> None:
    answers: dict[str, Answer] = {
        "/cut": (200, {"Content-Length": "1000"}, []), "/busy": (503, {}, []), "/bad": (400, {}, []),
    }  # fmt: skip
    with endpoint(lambda path, asked, headers: answers[path]) as where:
        for path, error in {"/cut": tidelake.StorageError, "/busy": tidelake.StorageError,
                            "/bad": tidelake.InvalidInputError}.items():  # fmt: skip
            puller = pulled(lake, f"http://{where}{path}", path.strip("/"))
            with pytest.raises(error):
                fetch(puller._definition, Window(T0, T0 + MINUTE_US))


def test_a_window_is_fetched_once_its_rows_have_had_time_to_arrive(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    ahead_us = {"at once": 0, "by default": 10_000_000, "later": 90_000_000}
    given = {"at once": {"delay": "0s"}, "by default": {}, "later": {"delay": "90s"}}
    for name, delay_us in ahead_us.items():
        puller = pulled(lake, "prometheus://127.0.0.1:1", name.replace(" ", "_"), **given[name])
        monkeypatch.setattr(pulling, "now_us", lambda until=T0 + delay_us: until - 1)
        assert list(puller.due()) == []
        monkeypatch.setattr(pulling, "now_us", lambda until=T0 + delay_us: until)
        assert list(puller.due()) == [Window(T0 - MINUTE_US, T0)]
    with pytest.raises(tidelake.InvalidInputError, match="delay"):
        lake.sync("prometheus://127.0.0.1:1", into="bad", delay="2d")
