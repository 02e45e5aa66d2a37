"""Let in who has a token that allows it, by every route, and tell the others nothing."""

from __future__ import annotations

import base64
import json
import re
import ssl
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import adbc_driver_flightsql.dbapi
import adbc_driver_manager
import httpx
import pyarrow as pa
import pytest
from click.testing import CliRunner

import tidelake
from tests.support.routes import agreed
from tests.support.serving import Served, make_certificate, serving
from tidelake.cli.main import main
from tidelake.errors import InvalidInputError, NotFoundError
from tidelake.objects import ObjectStore
from tidelake.server.access import Grant, create_token, find_grant, list_tokens, revoke_token
from tidelake.server.allowance import DAY_US, FOLDER, Allowance, forget_used, used_bytes
from tidelake.server.credentials import token_of
from tidelake.server.process import whole_app
from tidelake.server.refusals import Busy, Forbidden

ROW = b'{"ts": "2026-01-01T00:00:00Z", "n": 1}'

ROLES: dict[str, dict[str, Any]] = {
    "read": {"roles": ("read",)},
    "write": {"roles": ("write",)},
    "admin": {"roles": ("admin",)},
    "write in a": {"roles": ("write",), "namespaces": ("a",)},
    "write in b": {"roles": ("write",), "namespaces": ("b",)},
    "write to a.t": {"roles": ("write",), "tables": ("a.t",)},
    "read in a": {"roles": ("read",), "namespaces": ("a",)},
    "read in a and system": {"roles": ("read",), "namespaces": ("a", "system")},
}


@pytest.fixture(scope="module")
def tokens(lake_folder: Path) -> dict[str, str]:
    """Make a token of every kind, before anything is served."""
    with tidelake.connect(lake_folder) as lake:
        made = {name: create_token(lake.store, name, **options)[0] for name, options in ROLES.items()}
        made["two users"] = create_token(lake.store, "users", roles=["write"], users=["ann", "bob"])[0]
        made["over"] = create_token(lake.store, "over", roles=["admin"], expires_in="1ms")[0]
        for name in ("a.t", "b.t"):
            lake.create_table(name, {"ts": "timestamp", "n": "long"})
        lake.create_table("a.own", {"ts": "timestamp", "n": "long"}, scope="user")
    return made


@pytest.fixture(scope="module")
def guarded(tokens: dict[str, str], lake_folder: Path) -> Iterator[Served]:
    """Yield a server that needs tokens."""
    with serving(lake_folder) as server:
        yield server


def test_every_address_is_in_the_table_of_routes_and_roles() -> None:
    nothing: Any = None  # routes are only listed
    routes = [(getattr(each, "methods", ()), getattr(each, "path", each)) for each in whole_app(*[nothing] * 4).routes]
    assert {(method, path) for methods, path in routes for method in methods} == {each[1:] for each in agreed()}


def path_of(path: str) -> str:
    """Return an address of a route: about the table a.t, or whatever it is about."""
    path = path.replace("{database}/{table}", "a/t").replace("{table}", "a.t")
    return re.sub(r"\{[^}]*\}", "x", path)


def expected(role: str, path: str, who: str) -> set[int] | None:
    """Return the statuses with which someone is kept out of a route; None if they are let in."""
    if not role:
        return None
    if who in ("nobody", "garbage", "over"):
        return {401}
    roles = ROLES[who]["roles"]
    if role not in roles and "admin" not in roles:
        return {403}
    return {403} if "{table}" in path and who == "write in b" else None


WHO = ("nobody", "garbage", "over", *ROLES)


@pytest.mark.parametrize("who", WHO)
def test_every_route_lets_in_whom_it_should(guarded: Served, tokens: dict[str, str], who: str) -> None:
    token = {"nobody": None, "garbage": "tl_000000000000_" + "x" * 43}.get(who, tokens.get(who))
    with guarded.client(token) as client:
        wrong = []
        for role, method, path in sorted(agreed()):
            headers = {"accept": "text/html" if (role, path) == ("", "/") else "*/*"}
            if "/documents/" in path:
                headers["content-type"] = "application/json"  # which no other site can have a browser send
            status = client.request(method, path_of(path), content=ROW, headers=headers).status_code
            kept_out = expected(role, path, who)
            if who == "write to a.t" and role == "write" and "{table}" not in path:
                assert status != 401  # which table it is for is in the body, or in the protocol
                continue
            if status not in kept_out if kept_out else status in (401, 403):
                wrong.append((method, path, status, kept_out))
        assert wrong == []


def test_a_tenant_header_narrows_and_never_widens(guarded: Served, tokens: dict[str, str]) -> None:
    def send(who: str, table: str, **headers: str) -> int:
        with guarded.client(tokens[who]) as client:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            return client.post(f"/v1/ingest/{table}", content=ROW, headers=named).status_code

    assert send("write in a", "t") == 200
    assert send("write in a", "t", x_scope_orgid="a") == 200
    assert send("write in a", "t", x_scope_orgid="b") == 403
    assert send("write in a", "b.t", x_scope_orgid="a") == 403
    assert send("write to a.t", "a.other") == 403
    assert send("write", "t", x_tidelake_namespace="b") == 200
    assert send("write", "t", x_tidelake_namespace="b.t; drop") == 403
    assert send("two users", "a.own") == 403
    assert send("two users", "a.own", x_tidelake_user="carl") == 403
    assert send("two users", "a.own", x_tidelake_user="ann") == 200


def test_what_is_not_there_looks_like_what_may_not_be_seen(guarded: Served, tokens: dict[str, str]) -> None:
    with guarded.client(tokens["write in a"]) as client:
        there, not_there = (client.post(f"/v1/ingest/b.{name}", content=ROW) for name in ("t", "none"))
    assert (there.status_code, not_there.status_code) == (403, 403)
    assert there.text.replace("b.t", "") == not_there.text.replace("b.none", "")


def test_what_a_lake_tells_about_itself_is_within_a_tokens_reach(guarded: Served, tokens: dict[str, str]) -> None:
    with guarded.client(tokens["write in b"]) as client:
        assert client.post("/v1/ingest/b.t", content=ROW).status_code == 200

    def rows(who: str, sql: str) -> list[dict[str, Any]]:
        with guarded.client(tokens[who]) as client:
            answer = client.post("/v1/query", json={"sql": sql})
        assert answer.status_code == 200, answer.text
        return list(answer.json())

    requests = "select protocol from system.requests where status = 200"
    assert rows("admin", requests)
    assert rows("read in a and system", requests) == []
    tables = "select distinct namespace from system.tables order by 1"
    assert {"namespace": "b"} in rows("admin", tables)
    assert rows("read in a and system", tables) == [{"namespace": "a"}]
    for name in ("sources", "commits", "extents", "work", "columns", "manifest"):
        assert not [row for row in rows("read in a and system", f"select * from system.{name}") if "b.t" in str(row)]


@pytest.mark.parametrize(
    "scheme", ["Bearer {t}", "bearer {t}", "Splunk {t}", "Token {t}", "ApiKey {t}", "Basic {b}", "ApiKey {b}"]
)
def test_tokens_come_in_many_ways(guarded: Served, tokens: dict[str, str], scheme: str) -> None:
    token = tokens["write"]
    header = scheme.format(t=token, b=base64.b64encode(f"anybody:{token}".encode()).decode())
    answer = httpx.post(f"{guarded.url}/v1/ingest/a.t", content=ROW, headers={"authorization": header})
    assert answer.status_code == 200
    assert token_of({"authorization": header}) == token


@pytest.mark.parametrize("header", ["", "Bearer", "Basic ???", "Basic " + "A" * 5000, "Digest x", "Basic Zm9v", "\xff"])
def test_headers_that_hold_no_token_are_no_token(header: str) -> None:
    assert not token_of({"authorization": header})


def test_secrets_are_nowhere_but_with_who_has_them(guarded: Served, tokens: dict[str, str], lake_folder: Path) -> None:
    token = tokens["admin"]
    secret = token.rpartition("_")[2] or token[16:]
    with guarded.client(token) as client:
        client.post("/v1/ingest/a.t", content=b"{", headers={"x-api-key": token})
        client.post(f"/v1/ingest/a.t?token={token}", content=b"not json", headers={"content-type": "text/csv"})
        assert token[16:] not in client.get("/metrics").text
    assert not [line for line in guarded.said if token[16:] in line]
    kept = [path for path in lake_folder.rglob("*") if path.is_file() and token[16:].encode() in path.read_bytes()]
    assert kept == []
    assert secret not in repr(Grant(id="x"))


def test_a_token_that_is_revoked_is_refused_within_seconds(guarded: Served, lake_folder: Path) -> None:
    with tidelake.connect(lake_folder) as lake:
        token, grant = create_token(lake.store, "short", roles=["write"])
        with guarded.client(token) as client:
            assert client.post("/v1/ingest/a.t", content=ROW).status_code == 200
            revoke_token(lake.store, grant.id)
            until = time.monotonic() + 20
            while client.post("/v1/ingest/a.t", content=ROW).status_code == 200:
                assert time.monotonic() < until
                time.sleep(0.2)
            assert client.post("/v1/ingest/a.t", content=ROW).status_code == 401


def test_a_rate_is_never_too_small_for_a_request(memory_store: ObjectStore) -> None:
    allowance, grant = Allowance(memory_store), Grant(id="x", rate_bytes=100)
    allowance.rows(grant, 1_000_000)
    with pytest.raises(Busy, match="rate"):
        allowance.rows(grant, 1)
    allowance.request(Grant(id="y", rate_requests=1))
    with pytest.raises(Busy):
        allowance.request(Grant(id="y", rate_requests=1))


def test_a_quota_is_for_a_day_and_for_all_servers(store: ObjectStore) -> None:
    at_us = 20_000 * DAY_US
    first, second = (Allowance(store, lambda: at_us) for _ in range(2))
    grant = Grant(id="abc", quota_bytes=100)
    first.rows(grant, 1_000)  # a request is never too large for it
    first.stored(grant, 60)
    second.stored(grant, 50)
    for each in (first, second, first):
        each.rows(grant, 1)
        each.exchange(grant.id)
    for each in (first, second):
        with pytest.raises(Busy, match="quota"):
            each.rows(grant, 1)
    assert used_bytes(store, grant.id, at_us) == 110
    again = Allowance(store, lambda: at_us)  # started again
    again.exchange(grant.id)
    with pytest.raises(Busy, match="quota"):
        again.rows(grant, 1)
    again.rows(Grant(id="other", quota_bytes=100), 1)
    at_us += 2 * DAY_US
    first.rows(grant, 1)
    first.stored(grant, 1)
    first.exchange_all()
    assert used_bytes(store, grant.id, at_us) == 1
    assert len(list(store.list(FOLDER))) == 1  # older days are gone
    store.put(f"{FOLDER}/abc/{at_us // DAY_US}/x.json", b"no count")
    first.exchange(grant.id)
    forget_used(store, [grant.id])
    assert list(store.list(FOLDER)) == []


def test_a_quota_holds_by_every_way_in_and_after_a_start(tmp_path: Path) -> None:
    with tidelake.connect(tmp_path / "lake") as lake:
        lake.create_table("a.t", {"ts": "timestamp", "n": "long"})
        token = create_token(lake.store, "little", roles=["write"], namespaces=["a"], quota_bytes=10)[0]
    for is_first in (True, False):
        with serving(tmp_path / "lake") as served, served.client(token) as client:
            if is_first:
                assert client.post("/v1/ingest/a.t", content=b"no row").status_code == 400  # and takes nothing
                assert client.post("/v1/ingest/a.t", content=ROW).status_code == 200
            for path in ("/v1/ingest/a.t", "/t/_doc", "/v1/rest/ingest/a/t?streamFormat=json"):
                answer = client.post(path, content=ROW, headers={"content-type": "application/json"})
                assert (answer.status_code, answer.headers["retry-after"]) == (503, "60"), answer.text
                assert "quota" in answer.text
            rows = pa.table({"ts": [datetime(2026, 1, 1, tzinfo=UTC)], "n": [1]})
            with (
                adbc_driver_flightsql.dbapi.connect(
                    f"grpc+tcp://{served.flight}",
                    {"adbc.flight.sql.authorization_header": f"Bearer {token}"},
                    autocommit=True,
                ) as connection,
                connection.cursor() as cursor,
                pytest.raises(adbc_driver_manager.Error, match="quota"),
            ):
                cursor.adbc_ingest("t", rows, mode="append", db_schema_name="a")
    ran = CliRunner().invoke(main, ["tokens", "list", "--lake", str(tmp_path / "lake")])
    assert f", used {len(ROW)} of 10 bytes today" in ran.output


def test_tokens_are_kept_in_every_store(store: ObjectStore) -> None:
    token, grant = create_token(store, "one", roles=["write"], tables=["t"], users=["ann"], rate_bytes=5)
    assert find_grant(store, token) == grant
    assert (grant.tables, grant.users) == (("default.t",), ("ann",))
    assert list_tokens(store) == [grant]
    for wrong in (token[:-1], token[:-1] + ("a" if token[-1] != "a" else "b"), "", "tl_", token.replace("tl_", "tl-")):
        assert find_grant(store, wrong) is None
    revoke_token(store, "one")
    assert (find_grant(store, token), list_tokens(store)) == (None, [])
    with pytest.raises(NotFoundError):
        revoke_token(store, "one")


@pytest.mark.parametrize(
    "options",
    [
        {"roles": ["root"]},
        {"roles": []},
        {"roles": ["read"], "namespaces": ["a.b"]},
        {"roles": ["read"], "users": [""]},
    ],
)
def test_tokens_that_make_no_sense_are_not_made(memory_store: ObjectStore, options: dict[str, list[str]]) -> None:
    with pytest.raises(InvalidInputError):
        create_token(memory_store, "x", **options)  # type: ignore[arg-type]
    assert list_tokens(memory_store) == []


def test_a_grant_chooses_namespaces_and_users_within_its_scope() -> None:
    assert Grant().namespace(None) == "default"
    assert Grant(namespaces=("a",)).namespace(None) == "a"
    assert Grant(namespaces=("a", "b")).namespace("b") == "b"
    assert Grant(tables=("c.t",)).namespace(None) == "c"
    assert Grant(users=("ann",)).user(None) == "ann"
    with pytest.raises(Forbidden):
        Grant(namespaces=("a",)).namespace("b")
    with pytest.raises(Forbidden):
        Grant(users=("ann",)).user("bob")


def test_the_command_line_makes_lists_and_revokes_tokens(tmp_path: Path) -> None:
    def run(*arguments: str) -> str:
        ran = CliRunner().invoke(main, ["tokens", *arguments, "--lake", str(tmp_path / "lake")])
        assert ran.exit_code == 0, ran.output
        return ran.output

    token = run("create", "agent", "--role", "write", "--namespace", "obs").strip()
    assert token.startswith("tl_")
    listed = run("list")
    assert "agent: write of obs" in listed
    assert token[16:] not in listed
    assert json.loads(run("list", "--json"))[0]["namespaces"] == ["obs"]
    assert "revoked" in run("revoke", "agent")
    assert run("list") == ""


def test_tls_is_spoken_with_a_certificate(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    make_certificate(str(key), str(certificate))
    options = ("--tls-certificate", str(certificate), "--tls-key", str(key))
    with serving(tmp_path / "lake", *options) as served:
        assert served.url.startswith("https://")
        trusted = ssl.create_default_context(cafile=str(certificate))
        answer = httpx.post(f"{served.url}/v1/ingest/a.t", content=ROW, verify=trusted)
        assert answer.json()["rows"] == 1
