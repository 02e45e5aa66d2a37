"""Serve the page: what its files may do in a browser, who is signed in, what completes, and documents in the lake."""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

import tidelake
from tests.support.serving import Served, serving
from tidelake.server.access import create_token
from tidelake.server.page.serving import ASSETS, assets
from tools import page_bundle

HTML = {"accept": "text/html,application/xhtml+xml"}


@pytest.fixture(scope="module")
def lake_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("page") / "lake"
    with tidelake.connect(place, upkeep=False) as lake:
        for name in ("obs.logs", "secret.logs"):
            logs = lake.create_table(name, {"ts": "timestamp", "level": "string", "tags": "dynamic"}, time="ts")
            logs.append(
                [
                    {"ts": f"2026-01-01T00:00:{n:02d}Z", "level": "INFO" if n else "ERROR", "tags": {"http": {"ms": n}}}
                    for n in range(60)
                ]
            )
            logs.flush()
    return place


def test_files_may_run_nothing_but_the_pages_own_script(client: httpx.Client) -> None:
    answer = client.get("/", headers=HTML)
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    policy = dict(part.strip().split(" ", 1) for part in answer.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert "unsafe" not in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "set-cookie" not in answer.headers
    assert "<script>" not in answer.text
    assert "style=" not in answer.text
    assert "://" not in answer.text


def test_files_are_kept_by_browsers_until_they_change(client: httpx.Client) -> None:
    document = client.get("/", headers=HTML)
    name = document.text.split('src="page/page.js', 1)[1].split('"', 1)[0]
    script = client.get(f"/page/page.js{name}")
    assert script.headers["cache-control"].endswith("immutable")
    assert script.headers["content-encoding"] == "gzip"
    assert name == "?" + hashlib.sha256(script.content).hexdigest()[:16]
    again = client.get("/", headers={**HTML, "if-none-match": document.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    plain = client.get("/page/page.css", headers={"accept-encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert plain.content == (ASSETS / "page.css").read_bytes()


@pytest.mark.parametrize("name", ["bundle.json", "LICENSES.txt", "..%2f__init__.py", "%2e%2e/serving.py", "nothing.js"])
def test_nothing_else_of_the_folder_is_sent(client: httpx.Client, name: str) -> None:
    assert client.get(f"/page/{name}").status_code == 404


def test_clients_of_elasticsearch_still_find_their_greeting(client: httpx.Client) -> None:
    assert client.get("/").json()["version"]["number"]
    assert client.head("/", headers=HTML).headers["content-type"].startswith("text/html")


def test_the_bundle_was_built_from_these_sources() -> None:
    note = json.loads((ASSETS / page_bundle.NOTE).read_text())
    assert note["sources"] == page_bundle.sources_digest(), "run python -m tools.page_bundle"
    held = {path.name: page_bundle.digest(path.read_bytes()) for path in ASSETS.iterdir()}
    del held[page_bundle.NOTE]
    assert note["files"] == held


def test_the_page_is_small() -> None:
    assert sum(page_bundle.packed_bytes().values()) <= page_bundle.MOST_BYTES
    assert set(assets()) == {"index.html", "mark.svg", "page.css", "page.js"}


@pytest.mark.torture
def test_the_bundle_is_what_the_sources_give() -> None:
    if not shutil.which("npm"):
        pytest.skip("no npm: the bundle cannot be built here")
    command = [sys.executable, "-m", "tools.page_bundle", "--check"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def completed(client: httpx.Client, text: str, language: str = "kql", **more: str) -> dict[str, dict[str, Any]]:
    """Return what may stand at the place marked with ¦, by its label."""
    position = len(text.partition("¦")[0].encode("utf-16-le")) // 2
    body = {"text": text.replace("¦", ""), "position": position, "language": language}
    answer = client.post("/v1/complete", json=body, headers=more)
    assert answer.status_code == 200, answer.text
    return {each["label"]: each for each in answer.json()["options"]}


def test_tables_operators_columns_paths_and_values_complete(client: httpx.Client) -> None:
    assert set(completed(client, "¦")) >= {"obs.logs", "secret.logs"}
    assert set(completed(client, "obs.¦")) == {"logs"}
    assert next(iter(completed(client, "obs.logs | wh¦"))) == "where"
    found = completed(client, "obs.logs | where le¦")
    assert found["level"]["detail"] == "string"
    assert found["level"]["info"] == "ERROR, INFO"
    assert completed(client, "obs.logs | where tags.¦")["http.ms"]["info"] == "from 0 to 59"
    assert completed(client, "obs.logs | where tags.http.m¦")["ms"]["kind"] == "property"
    assert completed(client, "obs.logs | where level == ¦")["ERROR"]["apply"] == '"ERROR"'
    assert completed(client, 'obs.logs | where level == "E¦')["ERROR"]["apply"] == "ERROR"
    assert completed(client, "obs.logs | where '😀' != level and lev¦")["level"]["kind"] == "property"
    assert completed(client, "obs.logs | summarize dcou¦")["dcount"]["info"].startswith("how many different")
    assert set(completed(client, "select * from ob¦", "sql")) == {"obs.logs"}
    assert completed(client, "select lev¦ from obs.logs", "sql")["level"]["detail"] == "string"
    assert completed(client, "ra¦", "promql")["rate"]["kind"] == "function"


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b'{"text": 5, "position": 0}', b'{"text": "a", "position": "b"}', b'{"text": "", "position": 1e9}'],
)
def test_a_place_that_is_none_is_refused(client: httpx.Client, body: bytes) -> None:
    headers = {"content-type": "application/json"}
    assert client.post("/v1/complete", content=body, headers=headers).status_code == 400


def test_health_tells_every_table(client: httpx.Client) -> None:
    told = {each["table"]: each for each in client.get("/v1/status").json()["tables"]}
    assert told["obs.logs"]["rows"] == 60
    assert client.get("/v1/session").json()["is_anonymous"] is True


def save(client: httpx.Client, name: str, body: Any, revision: int, **headers: str) -> httpx.Response:
    return client.put(f"/v1/documents/question/{name}", json={"body": body, "revision": revision}, headers=headers)


def test_documents_have_revisions_and_live_in_the_lake(client: httpx.Client, reader: tidelake.Lake) -> None:
    assert client.get("/v1/documents/question").json() == {"documents": []}
    first = {"text": "obs.logs | take 5", "language": "kql", "values": {"p.x": "<script>"}}
    assert save(client, "mine & yours", first, 0).json()["revision"] == 1
    assert save(client, "mine & yours", {"text": "other"}, 1).json()["revision"] == 2
    late = save(client, "mine & yours", {"text": "late"}, 1)
    assert (late.status_code, late.json()["kind"]) == (409, "saved_meanwhile")
    found = client.get("/v1/documents/question/mine & yours").json()
    assert (found["revision"], found["body"], found["by"]) == (2, {"text": "other"}, "anonymous")
    told = client.get("/v1/documents/question/mine & yours/revisions").json()["revisions"]
    assert [(each["revision"], each["body"]) for each in told] == [(2, {"text": "other"}), (1, first)]
    gone = client.request("DELETE", "/v1/documents/question/mine & yours", json={"revision": 2})
    assert gone.json()["revision"] == 3
    assert client.get("/v1/documents/question/mine & yours").status_code == 404
    assert client.get("/v1/documents/question").json() == {"documents": []}
    assert save(client, "mine & yours", {"text": "anew"}, 0).json()["revision"] == 4
    assert len(reader.table("default.page_documents")) == 4


def test_of_two_who_save_at_once_one_is_told(client: httpx.Client) -> None:
    with ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(lambda n: save(client, "raced", {"n": n}, 0).status_code, range(8)))
    assert sorted(answers) == [200] + [409] * 7


@pytest.mark.parametrize(
    ("name", "body"), [("x" * 121, {}), ("%00", {}), (" x", {}), ("x", []), ("x", None), ("x", {"a": "b" * 300_000})]
)
def test_a_document_that_is_none_is_refused(client: httpx.Client, name: str, body: Any) -> None:
    assert save(client, name, body, 0).status_code in (400, 404)


def test_another_site_cannot_have_a_browser_save(client: httpx.Client) -> None:
    assert save(client, "forged", {}, 0, **{"sec-fetch-site": "cross-site"}).status_code == 403
    form = client.put("/v1/documents/question/forged", content=b"{}", headers={"content-type": "text/plain"})
    assert form.status_code == 403


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory, lake_folder: Path) -> Iterator[tuple[Served, dict[str, str]]]:
    place = tmp_path_factory.mktemp("guarded") / "lake"
    shutil.copytree(lake_folder, place)
    with tidelake.connect(place, upkeep=False) as lake:
        tokens = {
            "reader": create_token(lake.store, "reader", roles=["read"], namespaces=["obs"])[0],
            "writer": create_token(lake.store, "writer", roles=["read", "write"], namespaces=["obs"])[0],
        }
    with serving(place) as served:
        yield served, tokens


def test_a_token_sees_and_keeps_only_what_it_reaches(guarded: tuple[Served, dict[str, str]]) -> None:
    served, tokens = guarded
    with served.client() as nobody:
        assert nobody.get("/", headers=HTML).status_code == 200  # nothing of the lake is in the files
        for path in ("/v1/session", "/v1/status", "/v1/documents/question"):
            assert nobody.get(path).status_code == 401
    with served.client(tokens["reader"]) as reader:
        told = reader.get("/v1/session").json()
        assert (told["name"], told["roles"], told["namespace"]) == ("reader", ["read"], "obs")
        assert tokens["reader"].rpartition("_")[2] not in json.dumps(told)
        assert [each["table"] for each in reader.get("/v1/status").json()["tables"]] == ["obs.logs"]
        assert set(completed(reader, "¦")) == {"obs.logs"}
        assert "tags" not in completed(reader, "secret.logs | where t¦")
        assert save(reader, "mine", {}, 0).status_code == 403
    with served.client(tokens["writer"]) as writer:
        assert save(writer, "mine", {"text": "x"}, 0).status_code == 200
    with served.client(tokens["reader"]) as reader:
        assert [each["name"] for each in reader.get("/v1/documents/question").json()["documents"]] == ["mine"]


def test_ui_serves_the_page_on_this_machine_and_refuses_a_lake_that_is_not_there(
    lake_folder: Path, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "tidelake", "ui", "--no-open", "--lake"]
    missing = subprocess.run([*command, str(tmp_path / "none")], check=False, capture_output=True, text=True)
    assert missing.returncode == 1
    assert not (tmp_path / "none").exists()
    with subprocess.Popen([*command, str(lake_folder)], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        told = process.stderr.readline()
        address = told.split(" is at ")[1].split(" ")[0]
        assert address.startswith("http://127.0.0.1:")
        assert "page/page.js" in httpx.get(address, headers=HTML).text
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
