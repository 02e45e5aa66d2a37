"""Hold sources to what they promise whatever their kind: kept in the lake, run by one, without their secrets."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import tidelake
from tests.connectors.conftest import Shop
from tidelake.cli.main import main
from tidelake.connectors import registry
from tidelake.connectors.definition import SourceDefinition, expanded, kind_of, target_tables
from tidelake.connectors.mysql.reading import server_id_of
from tidelake.connectors.postgres.messages import Decoded, Decoder
from tidelake.connectors.system_columns import epoch_of, lsn_of, lsns_of
from tidelake.objects import ObjectStore, open_store

TABLE = "CREATE TABLE items (id int PRIMARY KEY, name text)"


def definition(name: str = "crm", url: str = "postgresql://app@host/db") -> SourceDefinition:
    return SourceDefinition(name, "postgres", url, {"public.items": "crm.items"}, id="ab12")


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://app:hunter2@host/db",
        "postgresql://host/db?password=hunter2",
        "mysql://app:hunter2@host/db",
        "https://host/api?token=hunter2",
    ],
)
def test_a_secret_that_is_written_out_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(tidelake.InvalidInputError, match="name a variable") as refused:
        definition(url=url)
    assert "hunter2" not in repr(refused.value)


def test_secrets_are_looked_up_where_the_source_runs(memory_store: ObjectStore) -> None:
    url = "postgresql://app:${CRM_PASSWORD}@host/db"
    registry.add(memory_store, definition(url=url))
    stored = [bytes(memory_store.get(meta.key)) for meta in memory_store.list("_sources")]
    assert len(stored) == 1
    assert b"${CRM_PASSWORD}" in stored[0]
    assert expanded(url, {"CRM_PASSWORD": "p@ss/word"}) == "postgresql://app:p@ss/word@host/db"
    with pytest.raises(tidelake.InvalidInputError, match="CRM_PASSWORD"):
        expanded(url, {})


def test_a_variable_that_is_not_set_disables_the_source(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop(TABLE)
    monkeypatch.setenv("CRM_PASSWORD", "p@ss:/word")
    url = shop.url.replace("postgres@", "postgres:${CRM_PASSWORD}@")
    shop.lake.sync(url, ["public.items"], into="crm")
    monkeypatch.delenv("CRM_PASSWORD")
    with pytest.raises(tidelake.InvalidInputError, match="CRM_PASSWORD"):
        shop.lake.source("crm").run()
    assert shop.lake.source("crm").definition.state == "disabled"
    monkeypatch.setenv("CRM_PASSWORD", "other")
    shop.lake.source("crm").resume()
    assert shop.lake.source("crm").run().changes == 0
    assert "p@ss" not in str(shop.lake.sources().to_pylist())
    shop.lake.source("crm").remove()


def test_credentials_that_changed_disable_the_source(shop: Shop) -> None:
    shop(TABLE, f"CREATE ROLE app_{os.getpid()} SUPERUSER LOGIN")
    url = shop.url.replace("postgres@", f"app_{os.getpid()}@")
    shop.lake.sync(url, ["public.items"], into="crm")
    source = shop.lake.source("crm")
    shop(f"ALTER ROLE app_{os.getpid()} NOLOGIN")
    with pytest.raises(tidelake.InvalidInputError):
        source.run()
    assert source.definition.state == "disabled"
    shop(f"ALTER ROLE app_{os.getpid()} LOGIN")
    source.resume()
    shop("INSERT INTO items VALUES (1, 'a')")
    assert source.run().changes == 1


def test_a_source_that_does_not_answer_is_tried_again_and_stays_running(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop(TABLE)
    monkeypatch.setattr("tidelake.connectors.runner.PAUSE_S", (0.01, 0.02))
    shop.lake.sync(shop.url, ["public.items"], into="crm")
    source, url = shop.lake.source("crm"), shop.url
    registry.change(shop.lake.store, "crm", lambda held: SourceDefinition.from_json(
        held.to_json().replace(url.encode(), b"postgresql://postgres@127.0.0.1:1/none"), "crm"))  # fmt: skip
    with pytest.raises(tidelake.StorageError, match="does not answer"):
        source.run()
    assert source.definition.state == "running"
    assert source.status.phase == "failing"
    registry.change(shop.lake.store, "crm", lambda held: SourceDefinition.from_json(
        held.to_json().replace(b"postgresql://postgres@127.0.0.1:1/none", url.encode()), "crm"))  # fmt: skip
    assert source.run().changes == 0
    assert source.status.error is None


def test_one_runs_a_source_and_another_is_told_who(shop: Shop) -> None:
    shop(TABLE, "INSERT INTO items VALUES (1, 'a')")
    shop.lake.sync(shop.url, ["public.items"], into="crm")
    source, stop = shop.lake.source("crm"), threading.Event()
    follower = threading.Thread(target=lambda: source.run(follow=True, stop=stop))
    follower.start()
    try:
        while not shop.lake.catalog.work.units(state="leased", kind="sync.crm"):
            stop.wait(0.01)
        with pytest.raises(tidelake.ConflictError, match="being run"):
            source.run()
        shop("INSERT INTO items VALUES (2, 'b')")
        while len(shop.lake.table("crm.items")) < 2:
            stop.wait(0.02)
    finally:
        stop.set()
        follower.join()
    assert source.run().changes == 0


def test_a_runner_that_was_killed_leaves_its_lease_to_the_next(shop: Shop, tmp_path: Path) -> None:
    shop(TABLE)
    shop.lake.sync(shop.url, ["public.items"], into="crm")
    script = (
        f"import os, tidelake, tidelake.connectors.runner as r; lake = tidelake.connect({shop.lake.where!r}); "
        "r._leased(lake.handle, 'crm'); os._exit(9)"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 9
    shop("INSERT INTO items VALUES (1, 'a')")
    assert shop.lake.source("crm").run().changes == 1


def test_definitions_are_changed_on_top_of_one_another(local_store: ObjectStore) -> None:
    registry.add(local_store, definition())
    with pytest.raises(tidelake.AlreadyExistsError):
        registry.add(local_store, definition())
    registry.change(local_store, "crm", lambda held: held.stopped("paused", "by hand"))
    crossed = False

    def late(held: SourceDefinition) -> SourceDefinition:
        nonlocal crossed
        if not crossed:
            crossed = True
            registry.change(local_store, "crm", lambda other: other.stopped("disabled", "by another"))
        return held.stopped("stopped", f"after {held.reason}")

    assert registry.change(local_store, "crm", late).reason == "after by another"
    assert registry.names(local_store) == ["crm"]
    registry.remove(local_store, "crm")
    with pytest.raises(tidelake.NotFoundError):
        registry.read(local_store, "crm")


def test_a_definition_that_cannot_be_read_says_so(memory_store: ObjectStore) -> None:
    registry.add(memory_store, definition())
    memory_store.put("_sources/crm/definition-0000000001.json", b'{"name": "other"}')
    with pytest.raises(tidelake.CorruptError, match="crm"):
        registry.read(memory_store, "crm")


def test_addresses_and_names_are_checked() -> None:
    assert [kind_of(url) for url in ("postgresql://h/d", "mariadb://h/d", "mongodb://h/d")] == [
        "postgres", "mysql", "mongo",
    ]  # fmt: skip
    for bad in ("", "host/db", "file:///etc/passwd", "oracle://h/d"):
        with pytest.raises(tidelake.InvalidInputError):
            kind_of(bad)
    with pytest.raises(tidelake.InvalidInputError):
        definition(name="../crm")
    with pytest.raises(tidelake.InvalidInputError):
        target_tables(["public.a/b"], "crm")


def test_texts_of_positions_sort_as_the_changes_do() -> None:
    places = [(0, 0), (0, 1), (1, 0), (9, 15), (9, 16), (10, 0), (2**40, 2**31), (2**62, 0)]
    array = lsns_of(3, np.array([a for a, _ in places]), np.array([b for _, b in places]))
    assert array.to_pylist() == sorted(array.to_pylist()) == [lsn_of(3, *place) for place in places]
    assert epoch_of(lsn_of(300, 1)) == 300
    assert lsn_of(1, 2**62) < lsn_of(2, 0)


def test_bytes_that_are_no_messages_are_an_error() -> None:
    header = b"PGCOPY\n\xff\r\n\x00" + bytes(8)

    def framed(message: bytes) -> bytes:
        return header + b"\x00\x01" + len(message).to_bytes(4, "big") + message + b"\xff\xff"

    def decode(data: bytes) -> Decoded:
        return Decoder({}, lambda *_: None, epoch=1).decode(data)

    row = b"\x00\x00\x00\x01"  # of a relation
    hostile = [
        b"B", b"I" + row + b"N\x00\x02n", b"U" + row + b"K\xff\xff", b"I" + row + b"N\x00\x01t\x7f\xff\xff\xff",
        b"D" + row, b"R" + row + b"public\x00", b"I" + row + b"N\x00\x01n", b"I" + row + b"X\x00\x00",
    ]  # fmt: skip
    for message in hostile:
        with pytest.raises(tidelake.CorruptError):
            decode(framed(message))
    with pytest.raises(tidelake.CorruptError):
        decode(header + b"\x00\x01\x7f\xff\xff\xff")
    assert decode(header + b"\xff\xff").changes == []


def test_the_command_line_does_what_the_library_does(shop: Shop) -> None:
    shop(TABLE, "INSERT INTO items VALUES (1, 'a')")
    where = shop.lake.where

    def said(*words: str, code: int = 0) -> str:
        found = CliRunner().invoke(main, ["--lake", where, *words])
        assert found.exit_code == code, found.output
        return found.output

    assert said("sync", "add", shop.url, "--into", "crm", "--table", "public.items") == "crm: crm.items\n"
    assert said("sync", "run") == "crm: 1 rows copied, 0 changes\n"
    said("sync", "pause", "crm")
    assert "paused" in said("sync", "run", "crm", code=1)
    assert said("sync", "run") == ""
    said("sync", "resume", "crm")
    shop("INSERT INTO items VALUES (2, 'b')")
    assert said("sync", "run", "crm") == "crm: 0 rows copied, 1 changes\n"
    assert "public.items -> crm.items  2 rows, running, streaming, 0.0 s behind" in said("sync", "list")
    sql = "SELECT source, rows FROM system.sources WHERE lag_seconds < 1"
    assert shop.lake.sql(sql).to_arrow().to_pylist() == [{"source": "crm", "rows": 2}]
    assert shop.lake.kql("system.sources | count").to_arrow().to_pylist() == [{"Count": 1}]
    said("sync", "remove", "crm")
    assert shop.database.execute(
        "SELECT count(*) FROM pg_replication_slots WHERE database = current_database()"
    ).fetchone() == (0,)
    assert shop.lake.sources().num_rows == 0
    assert len(shop.lake.table("crm.items")) == 2


def test_what_a_source_cannot_be_told_is_refused_in_words(shop: Shop) -> None:
    shop(TABLE)
    for options, words in (
        ({"folow": True}, "no option folow: it has publication, slot"),
        ({"schedule": "1m"}, "no option"),
    ):
        with pytest.raises(tidelake.InvalidInputError, match=words):
            shop.lake.sync(shop.url, ["public.items"], into="crm", **options)
    with pytest.raises(tidelake.InvalidInputError, match=r"no such table: is it public\.items\?"):
        shop.lake.sync(shop.url, ["items"], into="crm")
    for bad in ("abc", 0, 1 << 32, "-1"):
        with pytest.raises(tidelake.InvalidInputError, match="server_id is a number"):
            server_id_of(replace(definition(), options={"server_id": bad}))
    assert server_id_of(replace(definition(), options={"server_id": "77"})) == 77
    where, add = shop.lake.where, ["sync", "add", shop.url]
    for given, code, said in (
        (["--into", "crm", "--option", "slot"], 2, "NAME=VALUE"),
        (["--name", "crm", "--table", "public.items", "--table", "public.other=crm.o"], 1, "into="),
    ):
        found = CliRunner().invoke(main, ["--lake", where, *add, *given])
        assert (found.exit_code, said in found.output) == (code, True), found.output
    assert shop.lake.sources().num_rows == 0
    shop.lake.sync(shop.url, ["public.items"], into="crm")
    shop.lake.sync(shop.url, ["public.items"], into="crm")
    with pytest.raises(tidelake.AlreadyExistsError, match="another source"):
        shop.lake.sync(shop.url, ["public.items"], into="crm", slot="other")


def test_of_a_source_that_stands_still_nobody_knows_how_far_behind_it_is(shop: Shop) -> None:
    shop(TABLE)
    shop.lake.sync(shop.url, ["public.items"], into="crm")
    assert shop.lake.sources()["lag_seconds"].to_pylist() == [0.0]
    shop("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = current_database()")
    with pytest.raises(tidelake.NotFoundError):
        shop.lake.source("crm").run()
    assert shop.lake.sources()["lag_seconds"].to_pylist() == [None]
    with pytest.raises(tidelake.InvalidInputError, match="--resync") as stopped:
        shop.lake.source("crm").run()
    assert "resume" not in str(stopped.value)


def test_a_user_of_the_lake_does_not_see_its_sources(lake: tidelake.Lake) -> None:
    registry.add(lake.store, definition())
    assert lake.sql("SELECT count(*) AS n FROM system.sources").to_arrow().to_pylist() == [{"n": 1}]
    with pytest.raises(tidelake.InvalidInputError):
        lake.user("alice").sources()
    with pytest.raises(tidelake.TidelakeError):
        lake.user("alice").sql("SELECT * FROM system.sources").to_arrow()


def test_collection_leaves_sources_alone(tmp_path: Path) -> None:
    store = open_store(tmp_path / "lake")
    with tidelake.connect(tmp_path / "lake") as lake:
        registry.add(lake.store, definition())
        lake.collect(orphan_after="0s", all_orphans=True)
        assert registry.names(store) == ["crm"]
