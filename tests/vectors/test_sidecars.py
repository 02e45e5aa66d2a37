"""Check the objects of an index: written with extents, compacted, repaired, collected, and never needed."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tidelake
from tests.vectors.support import COLUMNS, SIZE, arrow, clustered, distances, recall_of
from tidelake.errors import CorruptError
from tidelake.lake import Lake
from tidelake.objects import is_codebook_key
from tidelake.table import Table
from tidelake.vectors import codebook, quantizing, sidecar
from tidelake.vectors import sidecars as written
from tidelake.vectors.definition import indexes_of

ROWS = 5_000
VECTORS = clustered(ROWS)
QUERIES = clustered(20, seed=9)
NOW: dict[str, Any] = {"abandoned_after": "0s", "dropped_after": "0s", "orphan_after": "0s"}


@pytest.fixture
def docs(lake: Lake) -> Table:
    table = lake.create_table("docs", COLUMNS, time="ts", flush_age="off")
    table.append(arrow(VECTORS))
    table.create_index("v", metric="l2")
    return table


def sidecars(lake: Lake) -> list[str]:
    return sorted(meta.key for meta in lake.handle.store.list("data") if meta.key.endswith(".vec"))


def codebooks(lake: Lake) -> list[str]:
    return sorted(meta.key for meta in lake.handle.store.list("data") if is_codebook_key(meta.key))


def index_of(table: Table) -> Any:
    return indexes_of(table.snapshot.settings, table.schema)["v"]


def test_every_extent_has_a_sidecar_and_compaction_carries_them_on(lake: Lake, docs: Table) -> None:
    book = codebooks(lake)
    for part in range(4):
        docs.append(arrow(clustered(1_500, seed=20 + part), first=10_000 + part * 1_500))
    assert len(sidecars(lake)) == len(docs.extents()) == 5
    near = docs.nearest("v", QUERIES[0], columns=["id"], recall=1)
    assert docs.compact().written == 1
    assert {index_of(docs).sidecar_key(extent.key) for extent in docs.extents()} <= set(sidecars(lake))
    assert "0 rows measured" in docs.explain_nearest("v", QUERIES[0])
    assert docs.nearest("v", QUERIES[0], columns=["id"], recall=1) == near
    docs.expire("1s", keep_last=1)
    assert codebooks(lake) == book == [index_of(docs).codebook_key]


@pytest.mark.parametrize("damage", ["missing", "damaged", "torn", "another's"])
def test_a_sidecar_that_cannot_be_read_is_searched_around_and_written_again(
    lake: Lake, docs: Table, damage: str
) -> None:
    docs.append(arrow(clustered(1_500, seed=20) + 1_000, first=10_000))
    store, (first, second) = lake.handle.store, sidecars(lake)
    sound = bytes(store.get(first))
    if damage == "missing":
        store.delete([first])
    else:
        flipped = bytearray(sound)
        flipped[len(flipped) // 2] ^= 4
        torn, others = sound[:-9], bytes(store.get(second))
        store.put(first, {"damaged": bytes(flipped), "torn": torn, "another's": others}[damage])
    with tidelake.connect(lake.handle.address) as fresh:
        table = fresh.table("docs")
        assert recall_of(table, VECTORS, QUERIES[:5], "l2") >= 0.95
        assert f"1 extents have a {'missing' if damage == 'missing' else 'damaged'} sidecar" in table.explain_nearest(
            "v", QUERIES[0]
        )
        assert table.indexes()[0].fallbacks == 1
    done = lake.maintain()
    assert "the vectors of 1 extents were coded" in str(done)
    assert bytes(store.get(first)) == sound
    assert "0 rows measured" in tidelake.connect(lake.handle.address).table("docs").explain_nearest("v", QUERIES[0])


@pytest.mark.parametrize("damage", ["missing", "damaged"])
def test_a_codebook_that_cannot_be_read_is_learned_anew(lake: Lake, docs: Table, damage: str) -> None:
    (book,) = codebooks(lake)
    if damage == "missing":
        lake.handle.store.delete([book])
    else:
        lake.handle.store.put(book, bytes(lake.handle.store.get(book))[:-1])
    with tidelake.connect(lake.handle.address) as fresh:
        forget_codebooks()
        table = fresh.table("docs")
        assert recall_of(table, VECTORS, QUERIES[:5], "l2") == 1
        fresh.maintain()
        assert table.indexes()[0].version == (1 if damage == "missing" else 2)
        assert table.indexes()[0].state == "active"
        assert recall_of(table, VECTORS, QUERIES, "l2") >= 0.95
        assert "0 rows measured" in table.explain_nearest("v", QUERIES[0])


def forget_codebooks() -> None:
    """Forget the codebooks that this process has read."""
    written._KEPT.renew_after_fork()


def test_a_table_that_outgrew_its_codebook_gets_the_next_version(
    lake: Lake, docs: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelake.vectors.indexing.OUTGROWN", 1)
    docs.append(arrow(clustered(2_000, seed=20), first=10_000))
    assert "outgrown" not in str(lake.maintain())
    (index,) = docs.indexes()
    assert (index.version, index.state, index.missing) == (2, "active", 0)
    assert "0 rows measured" in docs.explain_nearest("v", QUERIES[0])
    assert len(codebooks(lake)) == 2
    lake.collect(**NOW)
    assert codebooks(lake) == [index_of(docs).codebook_key]
    assert len(sidecars(lake)) == 2


def test_collection_keeps_what_is_used_and_takes_the_rest(lake: Lake, docs: Table) -> None:
    before, book = sidecars(lake), codebooks(lake)
    lake.collect(**NOW)
    assert (sidecars(lake), codebooks(lake)) == (before, book)
    docs.delete("id < 100")
    assert len(sidecars(lake)) == 2
    docs.expire("0s")
    lake.collect(**NOW)
    assert sidecars(lake) == [index_of(docs).sidecar_key(extent.key) for extent in docs.extents()]
    docs.drop_index("v")
    lake.collect(orphan_after="1d")
    assert len(sidecars(lake)) == len(codebooks(lake)) == 1
    report = lake.collect(**NOW)
    assert (sidecars(lake), codebooks(lake)) == ([], [])
    assert report.deleted["orphan"].objects == 2
    assert docs.nearest("v", QUERIES[0]).num_rows == 10


def test_a_dropped_table_takes_its_objects_with_it(lake: Lake, docs: Table) -> None:
    lake.drop_table("docs")
    lake.collect(**NOW)
    assert (sidecars(lake), codebooks(lake)) == ([], [])


def _append_and_die(where: str, step: str) -> None:
    lake = tidelake.connect(where)

    def at(point: str) -> None:
        if point == step:
            os.kill(os.getpid(), signal.SIGKILL)

    table = Lake(replace(lake.handle, at=at)).table("docs")
    if step.startswith("index."):
        table.create_index("v", metric="l2")
    else:
        table.append(arrow(clustered(1_500, seed=3), first=50_000))


@pytest.mark.parametrize("step", ["extent.written", "extent.coded"])
def test_a_writer_that_is_killed_leaves_nothing_behind(lake: Lake, docs: Table, step: str) -> None:
    doomed = multiprocessing.get_context("spawn").Process(target=_append_and_die, args=(lake.handle.address, step))
    doomed.start()
    doomed.join()
    assert doomed.exitcode == -signal.SIGKILL
    assert len(sidecars(lake)) == (2 if step == "extent.coded" else 1)
    assert len(docs) == ROWS
    assert recall_of(docs, VECTORS, QUERIES[:5], "l2") >= 0.9
    lake.collect(**NOW)
    assert sidecars(lake) == [index_of(docs).sidecar_key(extent.key) for extent in docs.extents()]


def test_an_index_whose_maker_was_killed_is_completed_by_upkeep(lake: Lake, tmp_path: Path) -> None:
    table = lake.create_table("docs", COLUMNS, time="ts", flush_age="off")
    table.append(arrow(VECTORS))
    doomed = multiprocessing.get_context("spawn").Process(
        target=_append_and_die, args=(lake.handle.address, "index.named")
    )
    doomed.start()
    doomed.join()
    assert doomed.exitcode == -signal.SIGKILL
    assert table.indexes()[0].state == "waiting"
    assert recall_of(table, VECTORS, QUERIES[:5], "l2") == 1
    lake.maintain()
    assert table.indexes()[0].state == "active"
    assert recall_of(table, VECTORS, QUERIES, "l2") >= 0.95


def test_a_manifest_names_the_index_at_once(lake: Lake) -> None:
    table = lake.create_table("app.notes", {"id": "long", "v": f"vector({SIZE})"}, key=["id"], flush_age="off")
    table.create_index("v", metric="dot")
    told = json.loads(bytes(lake.handle.store.get("app/notes/manifest.json")))["vector_indexes"]
    assert (told["v"]["metric"], told["v"]["dimensions"], told["v"]["state"]) == ("dot", SIZE, "syncing")
    table.append(arrow(VECTORS).select(["id", "v"]))
    lake.maintain()
    told = json.loads(bytes(lake.handle.store.get("app/notes/manifest.json")))["vector_indexes"]
    assert (told["v"]["state"], told["v"]["snapshot_path"]) == ("active", index_of(table).codebook_key)
    assert recall_of(table, VECTORS, QUERIES, "dot") >= 0.93
    table.drop_index("v")
    assert json.loads(bytes(lake.handle.store.get("app/notes/manifest.json")))["vector_indexes"] == {}


def test_users_have_their_own_rows_under_one_index(lake: Lake) -> None:
    notes = lake.create_table("app.notes", {"id": "long", "v": f"vector({SIZE})"}, scope="user", flush_age="off")
    for user in ("ann", "bob"):
        notes.user(user).append(arrow(clustered(3_000, seed=len(user) + ord(user[0]))).select(["id", "v"]))
    notes.create_index("v", metric="l2")
    for user in ("ann", "bob"):
        vectors = clustered(3_000, seed=len(user) + ord(user[0]))
        assert recall_of(notes.user(user), vectors, QUERIES[:8], "l2") >= 0.9
        assert "0 rows measured" in notes.user(user).explain_nearest("v", QUERIES[0])
    lake.collect(**NOW)
    assert notes.indexes()[0].extents == 2
    notes.user("ann").append(arrow(clustered(2_000, seed=4)).select(["id", "v"]))
    lake.handle.manifests.sync(notes.user("ann").handle.scope)
    told = json.loads(bytes(lake.handle.store.get("app/notes/ann/manifest.json")))["vector_indexes"]
    assert (told["v"]["engine"], told["v"]["metric"]) == ("ivf_pq", "l2")


def test_an_append_without_faiss_is_searched_exactly_and_coded_later(
    lake: Lake, docs: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quantizing, "is_available", lambda: False)
    docs.append(arrow(QUERIES[:1].repeat(1_200, axis=0), first=70_000))
    assert len(sidecars(lake)) == 1
    assert docs.nearest("v", QUERIES[0], k=1)["_distance"].to_pylist() == [0]
    with pytest.raises(tidelake.UnavailableError, match=r"pip install 'tidelake\[vectors\]'"):
        docs.create_index("v")
    monkeypatch.undo()
    lake.maintain()
    assert len(sidecars(lake)) == 2


def test_bytes_of_codebooks_and_sidecars_are_checked(docs: Table) -> None:
    store, index = docs.handle.store, index_of(docs)
    book = bytes(store.get(index.codebook_key))
    known = codebook.decode(book, "b")
    assert codebook.encode(known) == book
    extent = docs.extents()[0]
    data = bytes(store.get(index.sidecar_key(extent.key)))
    facts = {"extent_id": extent.id, "codebook_key": index.codebook_key, "rows": extent.row_count}
    assert sidecar.encode(sidecar.decode(data, "s", **facts)) == data
    assert len(data) < 40 * ROWS
    for bad in (b"", data[:30], data[:-1], data + b"\0", b"X" + data[1:], data[:40] + b"\xff" + data[41:]):
        with pytest.raises(CorruptError):
            sidecar.decode(bad, "s", **facts)
    with pytest.raises(CorruptError):
        codebook.decode(book[:-3], "b")
    with pytest.raises(CorruptError, match="other vectors"):
        sidecar.decode(data, "s", **{**facts, "extent_id": "0" * 32})


def test_a_search_is_the_same_in_a_forked_child(docs: Table) -> None:
    expected = docs.nearest("v", QUERIES[0], columns=["id"])["id"].to_pylist()
    here, there = multiprocessing.Pipe()

    def child() -> None:
        there.send(docs.nearest("v", QUERIES[0], columns=["id"])["id"].to_pylist())
        os._exit(0)

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    assert here.poll(60)
    assert here.recv() == expected
    process.join()
    assert expected[0] == int(np.argmin(distances("l2", VECTORS, QUERIES[0])))
