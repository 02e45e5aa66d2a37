"""Hold every store to one contract, and each to what only it can break."""

from __future__ import annotations

import os
import pickle
import random
import resource
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.support.faulty import Fault, FaultyStore, Firing
from tests.support.servers import S3Server, lossy_proxy
from tidelake.errors import AlreadyExistsError, InvalidInputError, NotFoundError, StorageError
from tidelake.objects import (
    CATALOG_FILE,
    LOG_CURRENT,
    MAX_VERSION,
    TEMPORARY_PREFIX,
    ObjectMeta,
    ObjectStore,
    batch_key,
    batch_number,
    check_key,
    compact_key,
    empty_folders,
    extent_coverage_key,
    extent_key,
    is_job_folder,
    is_manifest_key,
    is_own_folder,
    is_own_key,
    listing,
    log_checkpoint_key,
    log_commit_key,
    log_data_key,
    open_store,
    probe_conditional_put,
    remove_folders,
    scope_folder,
    segment_coverage_key,
    table_coverage_key,
    table_prefix,
    united_coverage_key,
)
from tidelake.objects.keys import OWN_FOLDERS
from tidelake.objects.remote import PART_BYTES

MIB = 1024 * 1024

VERBS: dict[str, Callable[[ObjectStore, str], Any]] = {
    "get": lambda store, key: store.get(key),
    "get_range": lambda store, key: store.get_range(key, 0, 1),
    "get_ranges": lambda store, key: store.get_ranges(key, [(0, 1)]),
    "get_tail": lambda store, key: store.get_tail(key, 1),
    "head": lambda store, key: store.head(key),
    "put": lambda store, key: store.put(key, b"x"),
    "put_if_absent": lambda store, key: store.put_if_absent(key, b"x"),
    "delete": lambda store, key: store.delete([key]),
    "list": lambda store, key: list(store.list(key)),
}
READS = ("get", "get_range", "get_ranges", "get_tail", "head")

HOSTILE_KEYS = (
    "",
    "/",
    "/etc/passwd",
    "a/",
    "a//b",
    ".",
    "a/./b",
    "..",
    "../b",
    "a/../../b",
    "a\\b",
    "a\nb",
    "a\x00b",
    "a\x7fb",
    "a\x85b",
    "a\ud800b",
    "é" * 513,
    "a/" + "b" * 256,
    f"{TEMPORARY_PREFIX}x",
    f"a/{TEMPORARY_PREFIX}x/b",
    CATALOG_FILE,
    f"{CATALOG_FILE}-wal",
)
AWKWARD_KEYS = (
    "plain",
    "a b/c d",
    "naïve/日本/💧",
    "e\u0301/é",
    "%41/%2F%",
    "a+b=c&d?e#f;g@h",
    "x&<y>'\"",
    "a~b*c|d^e{f}[g]",
    "name#1",
    "tail.",
    "..a/b..",
    "-a/~",
    "s" * 255,
    "/".join(["d" * 99] * 9),
)


def keys_of(store: ObjectStore, prefix: str = "") -> list[str]:
    return [meta.key for meta in store.list(prefix)]


@pytest.mark.parametrize("size", [0, 1, 8 * MIB])
def test_get_returns_what_was_put_at_every_size(store: ObjectStore, size: int) -> None:
    data = random.Random(size).randbytes(size)
    store.put("a/object", data)
    assert store.get("a/object").to_pybytes() == data
    assert store.head("a/object").size == size


@pytest.mark.parametrize("sort", [bytes, bytearray, memoryview, pa.py_buffer])
def test_put_takes_every_sort_of_bytes(store: ObjectStore, sort: Callable[[bytes], Any]) -> None:
    store.put("put", sort(b"some bytes"))
    store.put_if_absent("created", sort(b"some bytes"))
    assert [store.get(key).to_pybytes() for key in ("put", "created")] == [b"some bytes", b"some bytes"]


def test_put_replaces_object_when_key_is_taken(store: ObjectStore) -> None:
    store.put("key", b"a first, longer object")
    store.put("key", b"second")
    assert store.get("key").to_pybytes() == b"second"
    assert store.head("key").size == 6


def test_put_keeps_bytes_when_caller_changes_its_own_later(store: ObjectStore) -> None:
    data = bytearray(b"as it was")
    store.put("put", data)
    store.put_if_absent("created", data)
    data[:] = b"different"
    assert [store.get(key).to_pybytes() for key in ("put", "created")] == [b"as it was", b"as it was"]


@pytest.mark.parametrize("verb", READS)
def test_reading_is_not_found_when_key_is_missing(store: ObjectStore, verb: str) -> None:
    store.put("folder/other", b"x")
    for key in ("missing", "folder", "folder/missing", "folder/other/below"):
        with pytest.raises(NotFoundError, match=f"no such object key={key} "):
            VERBS[verb](store, key)


def test_get_range_returns_exactly_the_bytes_asked_for(store: ObjectStore) -> None:
    store.put("digits", b"0123456789")
    asked = {(0, 10): b"0123456789", (2, 3): b"234", (9, 1): b"9", (4, 0): b"", (10, 0): b"", (99, 0): b""}
    assert {wanted: store.get_range("digits", *wanted).to_pybytes() for wanted in asked} == asked


@pytest.mark.parametrize(
    ("start", "length"), [(8, 5), (10, 1), (20, 5), (0, 11), (0, 2**40), (2**62, 1), (2**63, 1), (1, 2**64)]
)
def test_range_is_a_short_read_when_it_passes_the_end(store: ObjectStore, start: int, length: int) -> None:
    store.put("digits", b"0123456789")
    with pytest.raises(StorageError, match="past the end") as one:
        store.get_range("digits", start, length)
    with pytest.raises(StorageError, match="past the end") as several:
        store.get_ranges("digits", [(0, 1), (start, length)])
    assert (one.value.kind, several.value.kind) == ("short_read", "short_read")


def test_range_of_empty_object_is_a_short_read(store: ObjectStore) -> None:
    store.put("empty", b"")
    with pytest.raises(StorageError, match="past the end"):
        store.get_range("empty", 0, 1)


@pytest.mark.parametrize("wanted", [(-1, 1), (0, -1), (5, -3)])
def test_range_is_refused_when_negative(store: ObjectStore, wanted: tuple[int, int]) -> None:
    store.put("digits", b"0123456789")
    with pytest.raises(InvalidInputError):
        store.get_ranges("digits", [wanted])


def test_get_ranges_answers_in_the_order_asked(store: ObjectStore) -> None:
    data = random.Random(7).randbytes(4 * MIB)
    store.put("large", data)
    ranges = [(3 * MIB, 10), (0, 5), (5, 0), (2, 7), (4 * MIB - 1, 1), (100, 1000), (0, 5), (4 * MIB, 0)]
    expected = [data[start : start + length] for start, length in ranges]
    assert [buffer.to_pybytes() for buffer in store.get_ranges("large", ranges)] == expected
    assert store.get_ranges("large", []) == []


def test_get_tail_returns_last_bytes_and_whole_size(store: ObjectStore) -> None:
    store.put("digits", b"0123456789")
    tails = {length: store.get_tail("digits", length) for length in (1, 4, 10, 11, 2**40)}
    assert {length: (tail.data.to_pybytes(), tail.size) for length, tail in tails.items()} == {
        1: (b"9", 10),
        4: (b"6789", 10),
        10: (b"0123456789", 10),
        11: (b"0123456789", 10),
        2**40: (b"0123456789", 10),
    }


def test_get_tail_is_empty_when_object_is(store: ObjectStore) -> None:
    store.put("empty", b"")
    tail = store.get_tail("empty", 8)
    assert (tail.data.to_pybytes(), tail.size) == (b"", 0)


@pytest.mark.parametrize("length", [0, -1, 2**64])
def test_get_tail_is_refused_when_length_makes_no_sense(store: ObjectStore, length: int) -> None:
    store.put("digits", b"0123456789")
    with pytest.raises(InvalidInputError):
        store.get_tail("digits", length)


def test_head_tells_size_and_time(store: ObjectStore) -> None:
    before = datetime.now(UTC)
    store.put("key", b"12345")
    meta = store.head("key")
    assert meta == ObjectMeta("key", 5, meta.modified)
    assert before - timedelta(seconds=2) <= meta.modified <= datetime.now(UTC) + timedelta(seconds=2)


def test_put_if_absent_refuses_and_keeps_the_first_when_key_is_taken(store: ObjectStore) -> None:
    store.put_if_absent("log/1", b"first")
    with pytest.raises(AlreadyExistsError, match="the key is taken key=log/1 "):
        store.put_if_absent("log/1", b"second")
    assert store.get("log/1").to_pybytes() == b"first"
    store.delete(["log/1"])
    store.put_if_absent("log/1", b"third")
    assert store.get("log/1").to_pybytes() == b"third"


def test_put_if_absent_has_one_winner_when_raced(store: ObjectStore) -> None:
    writers = 8 if store.url.startswith("s3:") else 16
    barrier = threading.Barrier(writers)

    def write(number: int) -> int | None:
        barrier.wait()
        try:
            store.put_if_absent("race/key", f"writer {number}".encode())
        except AlreadyExistsError:
            return None
        return number

    with ThreadPoolExecutor(writers) as pool:
        winners = [number for number in pool.map(write, range(writers)) if number is not None]
    assert len(winners) == 1
    assert store.get("race/key").to_pybytes() == f"writer {winners[0]}".encode()


def test_get_sees_whole_objects_while_they_are_replaced(store: ObjectStore) -> None:
    versions = [letter * MIB for letter in (b"a", b"b")]
    store.put("key", versions[0])

    def replace() -> None:
        for turn in range(1, 6):
            store.put("key", versions[turn % 2])

    seen = set()
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(replace)
        while not done.done():
            seen.add(store.get("key").to_pybytes())
        done.result()
    assert seen <= set(versions)


def test_list_yields_keys_in_order_at_any_depth(store: ObjectStore) -> None:
    keys = ["a-b", "a.json", "a/x", "a/x-y", "a/y/z", "ab/x", "b", "é/1", "日本/2", "💧"]
    for key in random.Random(1).sample(keys, len(keys)):
        store.put(key, key.encode())
    assert [(meta.key, meta.size) for meta in store.list()] == [(key, len(key.encode())) for key in keys]
    assert list(store.list()) == [store.head(key) for key in keys]


def test_list_takes_its_prefix_for_a_folder(store: ObjectStore) -> None:
    for key in ("a/x", "a/y/z", "ab/x", "a-b", "c"):
        store.put(key, b"")
    asked = {"a": ["a/x", "a/y/z"], "a/y": ["a/y/z"], "ab": ["ab/x"], "c": [], "b": [], "a/x": [], "a/y/z/n": []}
    assert {prefix: keys_of(store, prefix) for prefix in asked} == asked


def test_list_is_empty_when_store_is(store: ObjectStore) -> None:
    assert keys_of(store) == []


@pytest.mark.parametrize("key", AWKWARD_KEYS)
def test_awkward_key_works_with_every_verb(store: ObjectStore, key: str) -> None:
    store.put_if_absent(key, b"value")
    assert store.get(key).to_pybytes() == b"value"
    assert store.get_range(key, 1, 2).to_pybytes() == b"al"
    assert store.get_tail(key, 2).data.to_pybytes() == b"ue"
    assert store.head(key).size == 5
    assert keys_of(store) == [key]
    assert keys_of(store, key.rpartition("/")[0]) == [key]
    store.delete([key])
    assert keys_of(store) == []


@pytest.mark.parametrize("verb", VERBS)
def test_hostile_key_is_refused_by_every_verb(store: ObjectStore, verb: str) -> None:
    for key in HOSTILE_KEYS:
        if verb == "list" and key == "":
            continue
        with pytest.raises(InvalidInputError, match="not a key") as caught:
            VERBS[verb](store, key)
        assert (caught.value.kind, "\n" in str(caught.value)) == ("bad_key", False)
    assert keys_of(store) == []


def test_errors_are_told_apart_whatever_the_key_says(store: ObjectStore) -> None:
    key = "TimedOut/kind: Timeout/status code: 409 403 416/StartTooLarge {/tcp connect error"
    with pytest.raises(NotFoundError):
        store.get(key)
    store.put_if_absent(key, b"x")
    with pytest.raises(AlreadyExistsError):
        store.put_if_absent(key, b"y")
    with pytest.raises(StorageError, match="past the end"):
        store.get_range(key, 5, 1)


def test_delete_removes_what_is_there_and_minds_nothing_missing(store: ObjectStore) -> None:
    for key in ("a/1", "a/2", "b"):
        store.put(key, b"x")
    store.delete(key for key in ("a/1", "missing", "a", "b/below", "b"))
    assert keys_of(store) == ["a/2"]
    store.delete(["a/1", "b"])
    store.delete([])
    assert keys_of(store) == ["a/2"]


def test_delete_removes_nothing_when_one_key_is_hostile(store: ObjectStore) -> None:
    store.put("a", b"x")
    with pytest.raises(InvalidInputError):
        store.delete(["a", "../b"])
    assert keys_of(store) == ["a"]


def test_probe_accepts_every_store_and_leaves_nothing(store: ObjectStore) -> None:
    probe_conditional_put(store)
    probe_conditional_put(store, "some/prefix")
    assert keys_of(store) == []


def test_probe_refuses_store_that_ignores_the_condition(store: ObjectStore) -> None:
    careless = FaultyStore(store, [Fault("put_if_absent", "unconditional", times=None)])
    with pytest.raises(StorageError, match="ignores conditional put") as caught:
        probe_conditional_put(careless)
    assert caught.value.kind == "no_conditional_put"
    assert keys_of(store) == []


def test_reads_share_memory_with_what_the_store_gave(store: ObjectStore) -> None:
    store.put("key", b"x" * MIB)
    before = pa.total_allocated_bytes()
    held = [store.get("key"), *store.get_ranges("key", [(0, MIB)]), store.get_tail("key", MIB).data]
    assert {buffer.size for buffer in held} == {MIB}
    assert pa.total_allocated_bytes() == before


@pytest.mark.parametrize("place", ["local", "s3"])
def test_store_pickles_and_still_reads_and_writes(place: str, request: pytest.FixtureRequest) -> None:
    store: ObjectStore = request.getfixturevalue(f"{place}_store")
    store.put("here", b"1")
    sent: ObjectStore = pickle.loads(pickle.dumps(store))
    sent.put_if_absent("there", b"2")
    assert (sent.url, sent.get("here").to_pybytes(), store.get("there").to_pybytes()) == (store.url, b"1", b"2")


def test_memory_store_is_new_each_time_when_unnamed() -> None:
    open_store("memory://").put("key", b"x")
    assert keys_of(open_store("memory://")) == []


def test_memory_store_is_shared_within_the_process_when_named() -> None:
    name = f"memory://{secrets.token_hex(4)}"
    open_store(name).put("key", b"x")
    assert (keys_of(open_store(name)), keys_of(open_store(f"{name}-other"))) == (["key"], [])


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("gs://bucket", "s3://bucket/prefix"),
        ("https://host/bucket", "s3://bucket/prefix"),
        ("s3://", "no bucket"),
        ("s3:///prefix", "no bucket"),
        ("s3://key:secret@bucket/prefix", "no bucket"),
        ("s3://bucket/a//b", "not a key"),
        ("s3://bucket/../other", "not a key"),
        ("file://relative/folder", "file:///absolute/folder"),
        ("file:///folder?x=1", "file:///absolute/folder"),
        ("memory://a/b", "letters, digits"),
        ("", "not a folder's name"),
        ("a\0b", "not a folder's name"),
    ],
)
def test_open_store_says_what_it_accepts_when_place_is_wrong(where: str, said: str) -> None:
    with pytest.raises(InvalidInputError, match=said):
        open_store(where)


@pytest.mark.parametrize(
    ("where", "options", "said"),
    [
        ("memory://", {"endpoint": "http://127.0.0.1"}, "for s3:// only"),
        ("s3://bucket", {"endpoint": "127.0.0.1:9000"}, "begins with http"),
        ("s3://bucket", {"endpoint": "http://"}, "begins with http"),
        ("s3://bucket", {"key": "only"}, "go together"),
        ("s3://bucket", {"secret": "only"}, "go together"),
    ],
)
def test_open_store_refuses_options_that_do_not_fit(where: str, options: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidInputError, match=said):
        open_store(where, **options)  # type: ignore[arg-type]


def test_open_store_never_shows_the_secret(s3: S3Server) -> None:
    store = open_store("s3://bucket/p", endpoint=s3.endpoint, key="AKEY", secret="ASECRET")
    with pytest.raises(StorageError) as caught:
        store.get("x")
    assert "ASECRET" not in f"{store!r} {store.url} {caught.value} {caught.value.__cause__}"


# What only a folder can break.


def test_folder_is_made_with_its_parents_when_missing(tmp_path: Path) -> None:
    store = open_store(tmp_path / "some" / "new" / "lake")
    store.put("a", b"x")
    assert (tmp_path / "some/new/lake/a").read_bytes() == b"x"


def test_folder_is_not_made_when_told_not_to(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no such folder"):
        open_store(tmp_path / "missing", create=False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("below", ["", "/lake", "/some/lake"])
@pytest.mark.parametrize("create", [True, False])
def test_folder_is_refused_when_a_file_is_there(tmp_path: Path, below: str, create: bool) -> None:
    (tmp_path / "file").write_bytes(b"precious")
    with pytest.raises((InvalidInputError, NotFoundError), match=r"folder") as caught:
        open_store(f"{tmp_path}/file{below}", create=create)
    assert caught.value.kind == ("not_a_folder" if create or not below else "missing_root")
    assert (tmp_path / "file").read_bytes() == b"precious"


def test_folder_opens_again_by_its_url(tmp_path: Path) -> None:
    store = open_store(tmp_path / "a lake é 100%")
    store.put("key", b"x")
    assert keys_of(open_store(store.url, create=False)) == ["key"]


def test_folder_opens_where_the_process_stands_when_path_is_relative(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = open_store("lake")
    monkeypatch.chdir("/")
    store.put("key", b"x")
    assert (tmp_path / "lake/key").read_bytes() == b"x"


def test_folder_is_never_made_anew_when_it_has_gone(tmp_path: Path) -> None:
    store = open_store(tmp_path / "lake")
    (tmp_path / "lake").rmdir()
    for verb in ("get", "head", "put", "put_if_absent", "list"):
        for key in ("key", "folder/key"):
            with pytest.raises(StorageError, match="is its disk mounted") as caught:
                VERBS[verb](store, key)
            assert caught.value.kind == "missing_root"
    assert list(tmp_path.iterdir()) == []


def test_folder_below_is_made_again_when_someone_removed_it(local_store: ObjectStore, tmp_path: Path) -> None:
    local_store.put("a/b/1", b"x")
    local_store.delete(["a/b/1"])
    (tmp_path / "lake/a/b").rmdir()
    (tmp_path / "lake/a").rmdir()
    local_store.put("a/b/2", b"y")
    assert keys_of(local_store) == ["a/b/2"]


def test_folder_refuses_a_file_and_a_folder_of_one_name(local_store: ObjectStore) -> None:
    local_store.put("a", b"file")
    local_store.put("b/c", b"file")
    for key in ("a/below", "b"):
        with pytest.raises(StorageError, match="of one name") as caught:
            local_store.put(key, b"x")
        assert caught.value.kind == "name_clash"
    assert {key: local_store.get(key).to_pybytes() for key in keys_of(local_store)} == {"a": b"file", "b/c": b"file"}


def test_folder_hides_what_is_not_an_object(local_store: ObjectStore, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    local_store.put("data/1", b"x")
    (lake / f"{TEMPORARY_PREFIX}0123").write_bytes(b"unfinished")
    (lake / "data" / f"{TEMPORARY_PREFIX}4567").write_bytes(b"unfinished")
    (lake / CATALOG_FILE).write_bytes(b"catalog")
    (lake / f"{CATALOG_FILE}-wal").write_bytes(b"catalog")
    (lake / "empty").mkdir()
    (lake / "odd\nname").write_bytes(b"x")
    (lake / os.fsdecode(b"not-utf8-\xff")).write_bytes(b"x")
    os.mkfifo(lake / "pipe")
    assert keys_of(local_store) == ["data/1"]


def test_folder_lists_one_folder_at_a_time(local_store: ObjectStore) -> None:
    for key in ("a/1", "b/1", "c/1"):
        local_store.put(key, b"x")
    listing = local_store.list()
    assert next(listing).key == "a/1"
    local_store.delete(["b/1"])
    assert [meta.key for meta in listing] == ["c/1"]


def test_failed_put_leaves_the_old_object_and_no_other_file(local_store: ObjectStore, tmp_path: Path) -> None:
    local_store.put("key", b"old")
    with file_size_limit(100_000):
        for verb in (local_store.put, local_store.put_if_absent):
            for key in ("key", "other"):
                with pytest.raises(StorageError, match="no room") as caught:
                    verb(key, b"x" * 200_000)
                assert (caught.value.kind, "\n" in str(caught.value)) == ("disk_full", False)
    assert {path.name: path.read_bytes() for path in (tmp_path / "lake").iterdir()} == {"key": b"old"}


def test_lost_race_leaves_no_other_file(local_store: ObjectStore, tmp_path: Path) -> None:
    local_store.put_if_absent("key", b"first")
    with pytest.raises(AlreadyExistsError):
        local_store.put_if_absent("key", b"second")
    assert {path.name: path.read_bytes() for path in (tmp_path / "lake").iterdir()} == {"key": b"first"}


READ_ONLY_CHILD = """
import os, sys
from tidelake.errors import StorageError
from tidelake.objects import open_store
store = open_store(sys.argv[1], create=False)
store.get("warm")
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
for write in (store.put, store.put_if_absent, lambda key, data: store.delete(["warm"])):
    try:
        write("key", b"x")
    except StorageError as error:
        print(error.kind, str(error).count("\\n"), "check the folder's owner and mode" in str(error))
print(store.get("warm").to_pybytes())
"""


def test_folder_says_so_in_one_line_when_it_is_read_only() -> None:
    with tempfile.TemporaryDirectory(prefix="tidelake-test-") as place:
        folder = Path(place) / "lake"
        open_store(folder).put("warm", b"still readable")
        Path(place).chmod(0o755)
        folder.chmod(0o555)
        try:
            child = subprocess.run(
                [sys.executable, "-c", READ_ONLY_CHILD, str(folder)], capture_output=True, text=True, timeout=60
            )
        finally:
            folder.chmod(0o755)
        assert child.stdout.splitlines() == ["permission_denied 0 True"] * 3 + ["b'still readable'"], child.stderr


KILLED_CHILD = """
import os, sys, threading
from tidelake.objects import open_store
store = open_store(sys.argv[1])
def write(thread):
    for number in range(1_000_000):
        key = f"{thread}/{number % 7}/{number}"
        (store.put if number % 2 else store.put_if_absent)(key, bytes([number % 251]) * 300_000)
        store.put(f"{thread}/head", bytes([number % 251]) * 300_000)
        os.write(1, f"{key}\\n".encode())  # one write, so that threads do not mix their lines
for thread in range(3):
    threading.Thread(target=write, args=(thread,)).start()
"""


@pytest.mark.parametrize("acknowledged", [1, 10, 40])
def test_kill_leaves_whole_objects_and_all_that_was_acknowledged(tmp_path: Path, acknowledged: int) -> None:
    child = subprocess.Popen([sys.executable, "-c", KILLED_CHILD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    try:
        promised = [child.stdout.readline().strip() for _ in range(acknowledged)]
        time.sleep(random.Random(acknowledged).random() / 100)
    finally:
        child.send_signal(signal.SIGKILL)
        promised += [line.strip() for line in child.stdout if line.endswith("\n")]
        child.stdout.close()
        child.wait()
    store = open_store(tmp_path, create=False)
    found = {meta.key: store.get(meta.key).to_pybytes() for meta in store.list()}
    assert set(promised) <= set(found)
    assert not [key for key, data in found.items() if data != data[:1] * 300_000]
    numbered = {key: data for key, data in found.items() if not key.endswith("head")}
    assert {key: data[0] for key, data in numbered.items()} == {
        key: int(key.rpartition("/")[2]) % 251 for key in numbered
    }


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """Make writes past a size fail, as a full disk would."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


# What only a bucket can break.


def test_bucket_keeps_prefixes_apart(s3: S3Server) -> None:
    base = f"test-{secrets.token_hex(6)}"
    one, longer, below = s3.open(base), s3.open(f"{base}x"), s3.open(f"{base}/é a/")
    one.put("key", b"1")
    longer.put("key", b"2")
    below.put("key", b"3")
    assert (keys_of(one), keys_of(longer), keys_of(below)) == (["key", "é a/key"], ["key"], ["key"])
    assert one.get("é a/key").to_pybytes() == b"3"


def test_bucket_says_so_when_prefix_and_key_are_too_long_together(s3: S3Server) -> None:
    with pytest.raises(StorageError, match="shorter prefix") as caught:
        s3.open("p" * 200).put("/".join(["d" * 99] * 9), b"x")
    assert caught.value.kind == "bad_key"


def test_bucket_takes_large_object_in_parts(s3_store: ObjectStore) -> None:
    data = random.Random(3).randbytes(2 * PART_BYTES + 1)
    s3_store.put("large", data)
    assert s3_store.get_range("large", PART_BYTES - 1, 3).to_pybytes() == data[PART_BYTES - 1 : PART_BYTES + 2]
    assert s3_store.get("large").to_pybytes() == data


def test_bucket_lists_past_one_page(s3_store: ObjectStore) -> None:
    keys = [f"{n % 3}/{n:05d}" for n in range(1_100)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda key: s3_store.put(key, b""), keys))
    assert keys_of(s3_store) == sorted(keys)
    s3_store.delete(keys)
    assert keys_of(s3_store) == []


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    ("changed", "kinds", "said"),
    [
        ({"secret": "wrong"}, {"unauthenticated", "permission_denied"}, "check .*secret"),
        ({"key": "wrong"}, {"unauthenticated", "permission_denied"}, "check .*key"),
        ({"bucket": "no-such-bucket"}, {"missing_bucket"}, "no such bucket: check its name"),
    ],
)
def test_bucket_says_what_to_check_when_it_does_not_let_in(
    s3: S3Server, verb: str, changed: dict[str, str], kinds: set[str], said: str
) -> None:
    store = replace(s3, **changed).open()  # type: ignore[arg-type]
    with pytest.raises(StorageError, match=said) as caught:
        VERBS[verb](store, "some/key")
    assert caught.value.kind in kinds
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("verb", ["get", "put", "put_if_absent", "list"])
def test_bucket_says_so_soon_when_nothing_listens(verb: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        server = S3Server(f"http://127.0.0.1:{taken.getsockname()[1]}", "key", "secret", "lake")
        began = time.monotonic()
        with pytest.raises(StorageError, match="check the endpoint and the network") as caught:
            VERBS[verb](server.open(), "key")
    assert caught.value.kind == "unreachable"
    assert len(str(caught.value).splitlines()) == 1
    assert time.monotonic() - began < 10


def test_bucket_says_so_soon_when_nothing_answers_the_call() -> None:
    with socket.socket() as listener, socket.socket() as first, socket.socket() as second:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for waiting in (first, second):  # they fill the queue, and the system drops whoever calls next
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        server = S3Server(f"http://127.0.0.1:{listener.getsockname()[1]}", "key", "secret", "lake")
        began = time.monotonic()
        with pytest.raises(StorageError, match=r"check the endpoint and the network|did not answer in time"):
            server.open().get("key")
    assert 1 < time.monotonic() - began < 10


def test_bucket_ignores_the_environment_when_told_everything(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of someone else")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "someone else")
    store = s3.open(f"test-{secrets.token_hex(6)}")
    store.put_if_absent("key", b"x")
    assert store.get("key").to_pybytes() == b"x"


def test_conditional_put_is_unknown_and_not_taken_when_its_answer_is_lost(s3: S3Server) -> None:
    prefix = f"test-{secrets.token_hex(6)}"
    with lossy_proxy(s3) as (proxy, seen):
        proxy.lose_answer("PUT")
        with pytest.raises(StorageError):
            seen.open(prefix).put_if_absent("key", b"mine")
        assert proxy.requests == ["PUT"]
    assert s3.open(prefix).get("key").to_pybytes() == b"mine"


def test_conditional_put_is_not_repeated_when_the_server_fails(s3: S3Server) -> None:
    prefix = f"test-{secrets.token_hex(6)}"
    with lossy_proxy(s3) as (proxy, seen):
        proxy.refuse("PUT", 503)
        with pytest.raises(StorageError):
            seen.open(prefix).put_if_absent("key", b"mine")
        assert proxy.requests == ["PUT"]
    assert keys_of(s3.open(prefix)) == []


def test_conditional_put_asks_again_when_told_to(s3: S3Server) -> None:
    prefix = f"test-{secrets.token_hex(6)}"
    with lossy_proxy(s3) as (proxy, seen):
        proxy.refuse("PUT", 409)
        proxy.refuse("PUT", 409)
        seen.open(prefix).put_if_absent("key", b"mine")
        assert proxy.requests == ["PUT", "PUT", "PUT"]
    assert s3.open(prefix).get("key").to_pybytes() == b"mine"


def test_plain_verbs_are_repeated_when_the_server_fails_for_a_moment(s3: S3Server) -> None:
    with lossy_proxy(s3) as (proxy, seen):
        store = seen.open(f"test-{secrets.token_hex(6)}")
        proxy.lose_answer("PUT")
        store.put("key", b"value")
        proxy.refuse("GET", 503)
        proxy.lose_answer("GET")
        assert store.get("key").to_pybytes() == b"value"
        assert proxy.requests == ["PUT", "PUT", "GET", "GET", "GET"]


# Names.


def test_names_of_a_lake_are_these() -> None:
    names = {
        "data/obs/logs": table_prefix("obs", "logs"),
        "data/obs/logs/extents/0190a.tlm": extent_key("obs", "logs", "0190a", ".tlm"),
        "data/%2E%2E/a%2Fb/extents/1.parquet": extent_key("..", "a/b", "1", ".parquet"),
        "app/notes": scope_folder("app", "notes"),
        "app/notes/u-1/batch-7.parquet": batch_key(scope_folder("app", "notes", "u-1"), 7),
        "app/notes/%2E%2E%2F%C3%A9%25/compact-0a.parquet": compact_key(scope_folder("app", "notes", "../é%"), "0a"),
        "_timeseries_log/CURRENT": LOG_CURRENT,
        "_timeseries_log/0000000001.json": log_commit_key(1),
        "_timeseries_log/9999999999.json": log_commit_key(MAX_VERSION),
        "_timeseries_log/_checkpoints/0000000042.json": log_checkpoint_key(42),
        "_coverage/segments/segcov-0a.roar": segment_coverage_key("segcov-0a"),
        "_coverage/table/7-tblcov-0b.roar": table_coverage_key(7, "tblcov-0b"),
        "data/x.parquet": log_data_key("x.parquet"),
    }
    assert list(names) == list(names.values())


NAMES = st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=20) | st.sampled_from(
    ["..", ".", "/", "a/../b", "\\", "%2E", "~", "users", "extents", "CON", "a b"]
)


@given(NAMES, NAMES, NAMES)
def test_any_name_stays_one_segment_of_its_own(namespace: str, table: str, user: str) -> None:
    key = extent_key(namespace, table, "id", ".tlm")
    assert check_key(key) == key
    assert [unquote(segment) for segment in key.split("/")] == ["data", namespace, table, "extents", "id.tlm"]
    assume(namespace.lower() not in OWN_FOLDERS)
    key = batch_key(scope_folder(namespace, table, user), 3)
    assert check_key(key) == key
    assert [unquote(segment) for segment in key.split("/")] == [namespace, table, user, "batch-3.parquet"]
    assert batch_number(key) == (key.rpartition("/")[0], 3)


@pytest.mark.parametrize(
    "make",
    [
        lambda: table_prefix("", "t"),
        lambda: table_prefix("n\n", "t"),
        lambda: table_prefix("n", "\ud800"),
        lambda: table_prefix("n", "x" * 256),
        lambda: extent_key("n", "t", "", ".tlm"),
        lambda: extent_key("n", "t", "id", "/../../../../x"),
        lambda: scope_folder("data", "t"),
        lambda: scope_folder("DATA", "t", "u"),
        lambda: scope_folder("_coverage", "t"),
        lambda: scope_folder("n", "t", "x" * 256),
        lambda: log_data_key("../x"),
        lambda: log_data_key(""),
        lambda: log_commit_key(-1),
        lambda: log_commit_key(MAX_VERSION + 1),
        lambda: log_checkpoint_key(-1),
    ],
)
def test_name_is_refused_when_it_could_not_be_a_key(make: Callable[[], str]) -> None:
    with pytest.raises(InvalidInputError):
        make()


# The store that fails on purpose.


def test_faulty_store_is_the_inner_store_when_it_has_no_faults(store: ObjectStore) -> None:
    faulty = FaultyStore(store)
    faulty.put("a", b"0123456789")
    faulty.put_if_absent("b", b"x")
    assert faulty.get("a").to_pybytes() == b"0123456789"
    assert faulty.get_range("a", 1, 2).to_pybytes() == b"12"
    assert [buffer.to_pybytes() for buffer in faulty.get_ranges("a", [(0, 1), (8, 2)])] == [b"0", b"89"]
    assert faulty.get_tail("a", 4).data.to_pybytes() == b"6789"
    assert (keys_of(faulty), faulty.head("a")) == (["a", "b"], store.head("a"))
    faulty.delete(["b"])
    assert keys_of(store) == ["a"]
    assert faulty.bytes_by_verb == {"get": 10, "get_range": 2, "get_ranges": 3, "get_tail": 4}
    assert (faulty.reads, faulty.bytes_read, faulty.calls["put"], faulty.fired) == (4, 19, 1, [])


def test_fault_before_does_nothing_and_fires_as_often_as_told(memory_store: ObjectStore) -> None:
    fault = Fault("put*", "before", match="*.json", skip=1, times=2, kind="unreachable")
    faulty = FaultyStore(memory_store, [fault])
    faulty.put("1.json", b"passes")
    faulty.put("1.txt", b"passes")
    for put in (faulty.put, faulty.put_if_absent):
        with pytest.raises(StorageError, match="on purpose") as caught:
            put("2.json", b"fails")
        assert caught.value.kind == "unreachable"
    faulty.put("3.json", b"passes")
    assert keys_of(memory_store) == ["1.json", "1.txt", "3.json"]
    assert faulty.fired == [Firing("put", "2.json", "before"), Firing("put_if_absent", "2.json", "before")]


def test_fault_after_acts_and_loses_the_answer(memory_store: ObjectStore) -> None:
    faulty = FaultyStore(memory_store, [Fault("*", "after", times=None)])
    for act in (lambda: faulty.put("a", b"1"), lambda: faulty.put_if_absent("b", b"2"), lambda: faulty.get("a")):
        with pytest.raises(StorageError, match="the answer is lost") as caught:
            act()
        assert caught.value.kind == "timeout"
    assert keys_of(memory_store) == ["a", "b"]
    with pytest.raises(StorageError, match="the answer is lost"):
        faulty.delete(["a", "b"])
    assert keys_of(memory_store) == []


def test_fault_torn_stores_a_part_of_the_bytes(memory_store: ObjectStore) -> None:
    data = bytes(range(200))
    faulty = FaultyStore(memory_store, [Fault("put*", "torn", times=None)], seed=5)
    for key, put in (("a", faulty.put), ("b", faulty.put_if_absent)):
        with pytest.raises(StorageError):
            put(key, data)
        stored = memory_store.get(key).to_pybytes()
        assert data.startswith(stored)
        assert len(stored) < len(data)
    faulty.add(Fault("delete", "torn"))
    with pytest.raises(StorageError):
        faulty.delete(["a", "b"])
    assert keys_of(memory_store) == ["b"]


def test_fault_slow_acts_late(memory_store: ObjectStore) -> None:
    faulty = FaultyStore(memory_store, [Fault("put", "slow", seconds=0.2)])
    began = time.monotonic()
    faulty.put("a", b"1")
    assert time.monotonic() - began >= 0.2
    assert keys_of(memory_store) == ["a"]


def test_fault_stale_leaves_out_the_newest_keys(memory_store: ObjectStore) -> None:
    memory_store.put("z-oldest", b"")
    faulty = FaultyStore(memory_store, [Fault("list", "stale", newest=2)])
    for key in ("c", "b", "d", "a"):
        faulty.put(key, b"")
    assert keys_of(faulty) == ["b", "c", "z-oldest"]
    assert keys_of(faulty) == ["a", "b", "c", "d", "z-oldest"]


@pytest.mark.parametrize("verb", ["get", "get_range", "get_ranges", "get_tail"])
def test_fault_flip_turns_one_bit_of_what_is_read(memory_store: ObjectStore, verb: str) -> None:
    memory_store.put("a", b"\0")
    faulty = FaultyStore(memory_store, [Fault(verb, "flip")], seed=9)

    def read() -> bytes:
        found = VERBS[verb](faulty, "a")
        buffer = {"get_ranges": lambda: found[0], "get_tail": lambda: found.data}.get(verb, lambda: found)()
        return bytes(buffer)

    assert (read()[0].bit_count(), read()) == (1, b"\0")
    assert memory_store.get("a").to_pybytes() == b"\0"


def test_fault_by_chance_is_the_same_again_when_the_seed_is() -> None:
    def fate(seed: int) -> list[bool]:
        faulty = FaultyStore(open_store("memory://"), [Fault("put", "before", times=None, chance=0.5)], seed=seed)
        fates = []
        for number in range(64):
            try:
                faulty.put(f"{number}", b"")
                fates.append(True)
            except StorageError:
                fates.append(False)
        return fates

    assert fate(1) == fate(1)
    assert fate(1) != fate(2)
    assert 10 < sum(fate(1)) < 54


def test_fault_that_can_never_happen_is_a_mistake(memory_store: ObjectStore) -> None:
    with pytest.raises(ValueError, match="cannot happen"):
        FaultyStore(memory_store, [Fault("get", "torn")])


def test_folder_is_made_again_when_it_is_swept_away_before_each_write(local_store: ObjectStore, tmp_path: Path) -> None:
    """A collector removes a folder that it found empty, between its making and the first byte in it."""
    swept: list[str] = []
    folder = tmp_path / "lake" / "data"
    make = local_store._made  # type: ignore[attr-defined]

    def make_and_sweep(wanted: str) -> list[str]:
        made: list[str] = make(wanted)
        if wanted == str(folder) and len(swept) < 3:
            remove_folders(local_store, ["data"])
            swept.append(wanted)
        return made

    local_store._made = make_and_sweep  # type: ignore[attr-defined]
    local_store.put("data/1", b"x")
    assert (len(swept), keys_of(local_store)) == (3, ["data/1"])


def test_listing_in_any_order_is_the_list(store: ObjectStore) -> None:
    keys = {f"data/{n % 7}/{n}" for n in range(30)} | {"data/a/b/c", "database/1"}
    for key in keys:
        store.put(key, key.encode())
    assert {meta.key: meta.size for meta in listing(store, "data")} == {
        meta.key: meta.size for meta in store.list("data")
    }
    assert list(listing(store, "nothing")) == []


def test_listing_does_not_follow_links(local_store: ObjectStore, tmp_path: Path) -> None:
    local_store.put("data/1", b"x")
    (tmp_path / "lake/data/loop").symlink_to(tmp_path / "lake/data")
    (tmp_path / "lake/data/dangling").symlink_to(tmp_path / "nowhere")
    assert [meta.key for meta in listing(local_store, "data")] == ["data/1"]
    assert list(empty_folders(local_store, "data")) == []


def test_only_empty_folders_are_found_and_removed(local_store: ObjectStore, tmp_path: Path) -> None:
    data = tmp_path / "lake/data"
    (data / "a/b/c").mkdir(parents=True)
    (data / "d/e").mkdir(parents=True)
    local_store.put("data/d/1", b"x")
    assert list(empty_folders(local_store, "data")) in (
        ["data/a/b/c", "data/a/b", "data/a", "data/d/e"],
        ["data/d/e", "data/a/b/c", "data/a/b", "data/a"],
    )
    remove_folders(local_store, ["data/d", "data/gone", *empty_folders(local_store, "data")])
    assert sorted(path.name for path in data.rglob("*")) == ["1", "d"]


def test_own_keys_are_those_that_are_made(local_store: ObjectStore) -> None:
    own, names = "0123456789abcdef" * 2, ["plain", "with-dash_9", "a.b/../c", "ü%~"]
    made = [extent_key(n, n, own, suffix) for n in names for suffix in (".tlm", ".parquet")]
    folders = [scope_folder(n, n, user) for n in names for user in ("", n)]
    made += [batch_key(each, 12) for each in folders] + [compact_key(each, own) for each in folders]
    made += [f"{each}/job-{own}/{own}.parquet" for each in folders] + [
        f"{each}/job-{own}/{own}.cov" for each in folders
    ]
    assert all(is_job_folder(f"{each}/job-{own}") for each in folders)
    assert all(is_manifest_key(f"{each}/{name}.json") for each in folders for name in ("manifest", "manifest-part-0a"))
    made += [extent_coverage_key(n, n, own) for n in names] + [united_coverage_key(n, n, 7, own) for n in names]
    folder = extent_key("n", "t", f"job-{own}", "")
    made += [f"{folder}/{own}.tlm", f"{folder}/{own}.cov"]
    assert [key for key in made if not is_own_key(key)] == []
    assert is_job_folder(folder)
    assert all(is_own_folder(key.rpartition("/")[0]) for key in made)
    others = ["data/n/t/extents/x.tlm", f"{made[0]}x", f"x{made[0]}", f"{made[0]}\n", f"data/n/t/{own}.tlm", folder]
    others += ["data/t/u/batch-1.parquet", "n/batch-1.parquet", "n/t/u/v/batch-1.parquet", "n/t/batch-x.parquet"]
    others += ["n/t/batch-1.parquet.tmp", "n/t/compact-1.parquet", "n/../batch-1.parquet", "n/t/manifest.json"]
    assert [key for key in others if is_own_key(key)] == []
    assert not any(
        map(is_manifest_key, ("n/manifest.json", "n/t/x.json", "data/t/manifest.json", "n/t/u/v/manifest.json"))
    )
    assert not any(map(is_job_folder, (f"{folder}0", f"{folder}/x", "data/n/t/extents/job-")))
