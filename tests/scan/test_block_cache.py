"""See what decoded columns are kept: those that are read again, within a bound, and the same values as stored."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import tidelake
from tidelake.scan import block_cache
from tidelake.scan.block_cache import BlockCache


def column(size: int) -> pa.Array:
    return pa.array(range(size), pa.int64())


def test_column_is_kept_when_it_is_read_for_the_second_time() -> None:
    cache, key = BlockCache(1 << 20), ("e", 0, "a")
    cache.offer(key, column(10))
    assert (cache.found([key]), cache.byte_size) == ({}, 0)
    cache.offer(key, column(10))
    assert cache.found([key, ("e", 1, "a")]) == {key: column(10)}
    assert cache.byte_size == 80


def test_full_cache_keeps_what_is_being_read_and_gives_up_what_is_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = BlockCache(80 * 4)
    keys = [("e", number, "a") for number in range(6)]
    for key in keys * 2:
        cache.offer(key, column(10))
    assert list(cache.found(keys)) == keys[:4]
    assert cache.byte_size == 80 * 4
    monkeypatch.setattr(block_cache, "IDLE_S", -1.0)
    cache.found(keys[:2])
    cache.offer(keys[4], column(10))
    assert list(cache.found(keys)) == [keys[0], keys[1], keys[3], keys[4]]
    cache.offer(("e", 9, "b"), column(1_000))
    cache.offer(("e", 9, "b"), column(1_000))  # more than a part of the cache
    assert cache.byte_size == 80 * 4


def test_rows_are_the_same_however_often_they_are_read(tmp_path: Path) -> None:
    with tidelake.connect(tmp_path / "lake") as lake:
        table = lake.create_table("t", {"a": "long", "b": "string", "c": "real", "d": "dynamic"})
        table.append([{"a": n, "b": str(n % 7), "c": n / 3, "d": {"n": n}} for n in range(500)])
        table.flush()
        expected = table.scan().read_all().to_pylist()
        for _ in range(3):
            assert table.scan(["b", "a"], "c > 50").read_all().to_pylist() == [
                {"b": row["b"], "a": row["a"]} for row in expected if row["c"] > 50
            ]
            assert table.scan(["c", "b"]).read_all().to_pylist() == [{"c": row["c"], "b": row["b"]} for row in expected]
            assert table.scan().read_all().to_pylist() == expected
        assert lake.handle.footers._blocks.byte_size > 0
