"""Run the pipeline's jobs: load, copy, rewrite, and files that are dropped."""

from __future__ import annotations

import gzip
import io
import json
import secrets
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

import tidelake
from tests.support.servers import S3Server
from tidelake.cli.main import main
from tidelake.errors import InvalidInputError, NotFoundError
from tidelake.lake import Lake
from tidelake.spark import files
from tidelake.spark.drops import watch
from tidelake.spark.jobs import copy, load, rewrite


def record(n: int) -> dict[str, Any]:
    return {"ts": f"2026-01-01T00:{n // 60 % 60:02}:{n % 60:02}Z", "n": n, "message": f"row {n}", "tags": {"a": n % 3}}


def ndjson(numbers: range) -> bytes:
    return b"".join(json.dumps(record(n)).encode() + b"\n" for n in numbers)


def nothing_is_left_over(lake: Lake) -> bool:
    return lake.catalog.pending() == []


def files_of_every_kind() -> dict[str, bytes]:
    """Make files with 1,153 good records and four bad ones."""
    bad = b'not json\n{"n": 5}\n{"ts": "noon", "n": 6}\n'
    csv = (
        "ts,n,message\n2026-01-01T01:00:00Z,1150,x\n2026-01-01T01:00:00Z,many,y\n2026-01-01T01:00:00Z,1152,z,too much\n"
    )
    parquet = io.BytesIO()
    pq.write_table(
        pa.table({"ts": pa.array([10**15], pa.timestamp("us", tz="UTC")), "n": [1153], "extra": [2.5]}), parquet
    )
    return {
        "a.ndjson": ndjson(range(700)) + bad + ndjson(range(700, 1000)),
        "b.jsonl.gz": gzip.compress(ndjson(range(1000, 1100))),
        "c.json": json.dumps([record(n) for n in range(1100, 1150)]).encode(),
        "d.csv": csv.encode(),
        "e.parquet": parquet.getvalue(),
        "f.unknown": b"of no kind that is loaded",
    }


def check_files_of_every_kind(lake: Lake) -> None:
    rows = lake.table("obs.rows").to_arrow(["n", "message", "_overflow"])
    assert sorted(n for n in rows["n"].to_pylist() if n is not None) == [*range(1151), 1153]
    assert rows["n"].null_count == 1  # "many" is not a number, and is kept beside
    set_aside = lake.table("obs.rows_quarantine").to_arrow(["file", "line", "reason", "record"]).sort_by("line")
    assert [(Path(row["file"]).name, row["line"], row["reason"], row["record"]) for row in set_aside.to_pylist()] == [
        ("d.csv", 4, "4 fields and not 3", "2026-01-01T01:00:00Z,1152,z,too much"),
        ("a.ndjson", 701, set_aside["reason"][1].as_py(), "not json"),
        ("a.ndjson", 702, "a row has no time in the table's time column", '{"n": 5}'),
        ("a.ndjson", 703, "a row has no time in the table's time column", '{"ts": "noon", "n": 6}'),
    ]
    assert nothing_is_left_over(lake)


def test_load_takes_every_kind_of_file_and_sets_bad_records_aside(
    spark: SparkSession, lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "PIECE_BYTES", 20_000)  # so that a small file is cut, too
    (tmp_path / "in").mkdir()
    for name, data in files_of_every_kind().items():
        (tmp_path / "in" / name).write_bytes(data)
    report = load(lake, "obs.rows", str(tmp_path / "in"), time="ts", spark=spark)
    assert (report.files, report.rows, report.quarantined) == (5, 1153, 4)
    check_files_of_every_kind(lake)


def test_load_reads_a_bucket_with_the_credentials_of_the_lake(
    spark: SparkSession, s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "PIECE_BYTES", 20_000)
    prefix = f"load-{secrets.token_hex(6)}"
    store = s3.open(prefix)
    for name, data in files_of_every_kind().items():
        store.put(f"raw/day/{name}", data)
    raw = f"s3://{s3.bucket}/{prefix}/raw"
    place: dict[str, Any] = {
        "objects": f"s3://{s3.bucket}/{prefix}/lake",
        "endpoint": s3.endpoint,
        "key": s3.key,
        "secret": s3.secret,
    }
    with tidelake.connect(tmp_path / "lake", **place) as lake:
        assert load(lake, "obs.rows", raw, time="ts", key="once", spark=spark).rows == 1153
        check_files_of_every_kind(lake)
        assert load(lake, "obs.few", f"{raw}/*/[ab].*", time="ts", spark=spark).files == 2
        assert load(lake, "obs.few", f"{raw}/**/b.*", spark=spark).rows == 100
        with pytest.raises(NotFoundError, match="no file to load"):
            load(lake, "obs.few", f"{raw}/night/*.csv", spark=spark)
        with pytest.raises(NotFoundError, match="no file to load"):
            load(lake, "obs.few", f"{raw}/day/none.csv", spark=spark)


def test_load_under_a_key_happens_once_and_names_what_is_wrong(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    (tmp_path / "a.ndjson").write_bytes(ndjson(range(10)))
    path = str(tmp_path / "*.ndjson")
    first = load(lake, "t", path, key="k", schema={"ts": "timestamp", "n": "long"}, time="ts", spark=spark)
    again = load(lake, "t", path, key="k", spark=spark)
    assert (first.rows, first.replayed, again.rows, again.replayed) == (10, False, 10, True)
    assert lake.table("t").to_arrow().num_rows == 10
    with pytest.raises(NotFoundError, match="no file to load"):
        load(lake, "t", str(tmp_path / "nothing-*.csv"), spark=spark)
    (tmp_path / "what.xyz").write_text("?")
    with pytest.raises(InvalidInputError, match=r"cannot tell what 'what\.xyz' holds"):
        load(lake, "t", str(tmp_path / "what.xyz"), spark=spark)


def test_copy_appends_what_a_query_makes_of_a_table(spark: SparkSession, lake: Lake) -> None:
    source = lake.create_table("a", {"ts": "timestamp", "n": "long", "tags": "dynamic"}, time="ts")
    source.append([record(n) for n in range(2_000)])
    report = copy(lake, "a", "b", query="select ts, n * 2 as twice, tags from source where n < 100", spark=spark)
    assert report.rows == 100
    found = lake.table("b").to_arrow(where='tags["a"] == 2')
    assert sorted(found["twice"].to_pylist()) == [n * 2 for n in range(100) if n % 3 == 2]


def test_rewrite_changes_the_format_and_keeps_the_rows(spark: SparkSession, lake: Lake) -> None:
    table = lake.create_table("a", {"ts": "timestamp", "n": "long", "tags": "dynamic"}, time="ts")
    for start in range(0, 9_000, 3_000):
        table.append([record(n) for n in range(start, start + 3_000)])
    table.append([record(9_000)])  # hot, and stays so
    before = table.to_arrow().sort_by("n")
    report = rewrite(lake, "a", format="parquet", block_rows=1_000, spark=spark)
    assert (report.rows, report.before) == (9_000, 3)
    assert {extent.format for extent in table.extents()} == {"parquet"}
    assert max(extent.row_count / extent.block_count for extent in table.extents()) <= 1_000
    assert table.to_arrow().sort_by("n") == before
    table.append([record(n) for n in range(10_000, 13_000)])
    assert {extent.format for extent in table.extents()} == {"parquet"}
    assert nothing_is_left_over(lake)


def test_dropped_files_are_loaded_once_each(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    inbox = tmp_path / "in" / "obs" / "rows"
    inbox.mkdir(parents=True)
    (inbox / "a.ndjson").write_bytes(ndjson(range(10)))
    (inbox / "b.ndjson").write_bytes(ndjson(range(10, 30)))
    (inbox / "same-as-a.ndjson").write_bytes(ndjson(range(10)))
    (inbox / ".half.ndjson").write_bytes(b"{")
    (first,) = watch(lake, tmp_path / "in", once=True, spark=spark)
    assert (first.table, first.files, first.rows, first.replayed) == ("obs.rows", 3, 30, 1)
    (inbox / "a-again.ndjson").write_bytes(ndjson(range(10)))
    (inbox / "c.ndjson").write_bytes(ndjson(range(30, 35)))
    (second,) = watch(lake, tmp_path / "in", once=True, spark=spark)
    assert (second.files, second.rows, second.replayed) == (2, 5, 1)
    assert sorted(lake.table("obs.rows").to_arrow()["n"].to_pylist()) == list(range(35))
    assert sorted(path.name for path in inbox.iterdir()) == [".half.ndjson"]
    assert len(list((tmp_path / "in" / "_done").rglob("*.ndjson"))) == 5
    assert nothing_is_left_over(lake)


def test_a_bad_dropped_file_is_set_aside_and_stops_no_other(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    root = tmp_path / "in"
    dropped = {
        "a/rows/good.ndjson": ndjson(range(5)),
        "a/rows/torn.parquet": b"PAR1 this is no parquet file",
        "a/rows/timeless.ndjson": b'{"n": 1}\n' * 3,
        "b/new/broken.ndjson.gz": b"one",  # no table can be made of it
        "bad name/t/x.ndjson": ndjson(range(2)),
        "c/rows/good.ndjson": ndjson(range(7)),
    }
    for name, data in dropped.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    found = {report.table: report for report in watch(lake, root, once=True, spark=spark)}
    assert {name: (each.rows, each.set_aside) for name, each in found.items()} == {
        "a.rows": (5, 1), "b.new": (0, 1), "bad name.t": (0, 1), "c.rows": (7, 0),
    }  # fmt: skip
    assert lake.tables() == ["a.rows", "a.rows_quarantine", "c.rows"]
    bad = {str(path.relative_to(root / "_bad")) for path in (root / "_bad").rglob("*") if path.is_file()}
    aside = {"a/rows/torn.parquet", "b/new/broken.ndjson.gz", "bad name/t/x.ndjson"}
    assert bad == aside | {f"{name}.reason" for name in aside}
    assert "inflate failed" in (root / "_bad/b/new/broken.ndjson.gz.reason").read_text()
    assert (root / "_bad/a/rows/torn.parquet").read_bytes() == dropped["a/rows/torn.parquet"]
    assert list(watch(lake, root, once=True, spark=spark)) == []  # nothing is tried again
    (root / "b/new/broken.ndjson.gz").write_bytes(b"two")  # another of the same name
    list(watch(lake, root, once=True, spark=spark))
    assert (root / "_bad/b/new/broken.ndjson.gz").read_bytes() == b"one"
    assert (root / "_bad/b/new/broken.ndjson.gz.2").read_bytes() == b"two"
    assert nothing_is_left_over(lake)


def test_commands_mirror_the_jobs(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a.ndjson").write_bytes(ndjson(range(10)))
    where = str(tmp_path / "lake")
    run = CliRunner().invoke(main, ["load", "t", str(tmp_path / "a.ndjson"), "--lake", where, "--json"])
    assert run.exit_code == 0, run.output
    assert json.loads(run.output)["rows"] == 10
    run = CliRunner().invoke(
        main, ["copy", "t", "u", "--lake", where, "--query", "select ts, n from source where n > 7"]
    )
    assert run.exit_code == 0, run.output
    assert "rows=2" in run.output
    run = CliRunner().invoke(main, ["rewrite", "t", "--lake", where, "--format", "nothing"])
    assert (run.exit_code, "unknown format 'nothing'" in run.output) == (1, True)
    run = CliRunner().invoke(main, ["stream", str(tmp_path / "nowhere"), "--lake", where, "--once"])
    assert (run.exit_code, "no such folder" in run.output) == (1, True)


def test_spark_is_not_imported_by_the_command_line() -> None:
    code = (
        "import sys; from tidelake.cli.main import main; main(['--help'], standalone_mode=False); "
        "assert 'pyspark' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "load" in done.stdout
    assert "rewrite" in done.stdout
