"""Read extents in the JVM, without Python: the rows are those that Python reads, and what is damaged is an error."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
from pyspark.sql import Row, SparkSession

import tidelake
import tidelake.spark
from tidelake import Lake
from tidelake.spark import reading
from tidelake.spark.direct import MARK, described
from tidelake.spark.options import OWN_PLAN
from tidelake.spark.reading import Split, TableReader
from tidelake.spark.types import spark_schema

COLUMNS = {
    "ts": "timestamp", "n": "int", "k": "long", "x": "real", "b": "bool", "code": "string", "text": "string",
}  # fmt: skip


@pytest.fixture
def session(spark: SparkSession, lake: Lake) -> SparkSession:
    return tidelake.spark.register(spark.newSession(), lake=lake)


def rows(count: int, seed: int = 1) -> list[dict[str, Any]]:
    """Make rows with nulls in all columns but the time, codes that are all as long, texts of any length."""
    chance = random.Random(seed)

    def maybe(value: Any) -> Any:
        return None if chance.random() < 0.2 else value

    return [
        {
            "ts": f"2026-03-01T{at // 3600:02}:{at // 60 % 60:02}:{at % 60:02}Z", "n": maybe(chance.randrange(-9, 9)),
            "k": maybe(chance.getrandbits(62)), "x": maybe(chance.choice([0.0, -0.0, 1e300, float("inf"), 0.1])),
            "b": maybe(chance.random() < 0.5), "code": f"c{at % 100:03}",
            "text": maybe("".join(chance.choices("aé漢🌊", k=chance.randrange(at % 90 + 1)))),
        }
        for at in range(count)
    ]  # fmt: skip


def stored(lake: Lake, table: str, columns: Sequence[str] | None = None, **options: str) -> list[bytes]:
    """Return what is described of each split of a scan."""
    told = {"lake": lake.where, "table": table, OWN_PLAN: "1", **options}
    splits = TableReader(told, spark_schema(lake.table(table).schema, columns)).partitions()
    return [split.stored[len(MARK) + 4 :] for split in splits if isinstance(split, Split) and not split.plan.hot]


@contextmanager
def no_tickets(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Plan splits that Python cannot read."""
    planned = reading._split_of
    with monkeypatch.context() as patched:
        patched.setattr(reading, "_split_of", lambda *given: (planned(*given)[0], {}))
        yield


@contextmanager
def described_as(monkeypatch: pytest.MonkeyPatch, change: Any) -> Iterator[None]:
    """Plan splits whose description is changed."""
    real = described
    with monkeypatch.context() as patched:
        patched.setattr(reading, "described", lambda *given: lambda *split: change(real(*given)(*split)))
        yield


def read(session: SparkSession, table: str) -> list[Row]:
    return session.sql(f"SELECT * FROM tidelake.{table} ORDER BY ts").collect()


def test_rows_of_every_plain_type_are_read_without_python(
    session: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = lake.create_table("o.t", COLUMNS, time="ts", flush_age="off")
    for seed, count in enumerate((1, 7, 2000)):
        table.append(rows(count, seed))
        table.flush()
    whole = table.to_arrow().to_pylist()
    with described_as(monkeypatch, lambda _: b""):
        by_python = read(session, "o.t")
    assert all(stored(lake, "o.t"))
    with no_tickets(monkeypatch):
        assert read(session, "o.t") == by_python
        assert len(whole) == len(by_python) == 2008
        asked = "SELECT count(*), count(n), bit_xor(k), count_if(b), min(code), sum(length(text)) FROM tidelake.o.t"
        assert session.sql(asked + " WHERE true").collect() == session.sql(asked).collect()
        assert session.sql(asked).collect()[0][0] == 2008
        frame = session.read.format("tidelake").options(lake=lake.where, table="o.t").load()
        assert frame.orderBy("ts").collect() == by_python


def test_bytes_of_any_length_have_the_checksum_that_was_written(
    session: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.create_table("o.t", {"ts": "timestamp", "text": "string"}, time="ts", flush_age="off")
    chance = random.Random(4)
    made = [(at, "".join(chance.choices("0123456789abcdef", k=at))) for at in range(1600)]
    frame = session.createDataFrame(made, "at INT, text STRING").selectExpr("timestamp_seconds(at) AS ts", "text")
    options = {"lake": lake.where, "table": "o.t", "blockRows": "1", "extentBytes": "1000000"}
    frame.coalesce(1).write.format("tidelake").options(**options).mode("append").save()
    lake.table("o.t").flush()
    found = [orjson.loads(each) for each in stored(lake, "o.t")]
    pieces = [
        column["len"] for each in found for extent in each["extents"] for block in extent["blocks"]
        for column in block["columns"]
    ]  # fmt: skip
    assert len([size for size in pieces if 16 < size <= 128]) > 50
    assert len([size for size in pieces if 128 < size <= 240]) > 50
    assert len([size for size in pieces if 240 < size <= 1024]) > 100
    with no_tickets(monkeypatch):
        assert [row.text for row in read(session, "o.t")] == [text for _, text in made]


def test_a_column_that_extents_lack_is_null_and_rows_that_change_are_known(
    session: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = lake.create_table("o.t", COLUMNS, time="ts", flush_age="off")
    table.append(rows(500))
    table.flush()
    session.sql("ALTER TABLE tidelake.o.t ADD COLUMN later STRING")
    with no_tickets(monkeypatch):
        assert {row.later for row in read(session, "o.t")} == {None}
        session.sql("UPDATE tidelake.o.t SET later = concat('at ', code) WHERE substring(code, 4, 1) = '7'")
    found = {row.code: row.later for row in read(session, "o.t")}
    assert found == {f"c{at:03}": f"at c{at:03}" if at % 10 == 7 else None for at in range(100)}


def test_python_goes_on_where_the_jvm_cannot(
    session: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = lake.create_table("o.t", COLUMNS, time="ts", flush_age="off")
    for hour in range(3):
        table.append([{**row, "ts": row["ts"].replace("T00", f"T{hour:02}")} for row in rows(200, hour)])
        table.flush()
    expected = table.to_arrow(["ts", "code"]).sort_by("ts").to_pylist()

    def with_other_sum(block: int) -> Any:
        def change(description: bytes) -> bytes:
            told = orjson.loads(description)
            told["extents"][block]["blocks"][0]["columns"][0]["sum"] = "0" * 16
            return orjson.dumps(told)

        return change

    def with_other_kind(description: bytes) -> bytes:
        return description.replace(b'"text"', b'"song"')

    for change in (with_other_sum(0), with_other_sum(1), with_other_sum(2), with_other_kind, lambda _: b"not JSON"):
        with described_as(monkeypatch, change):
            found = session.sql("SELECT code, ts FROM tidelake.o.t ORDER BY ts").collect()
        assert [row.code for row in found] == [row["code"] for row in expected]


def test_a_damaged_extent_is_an_error_and_no_answer(session: SparkSession, lake: Lake, tmp_path: Path) -> None:
    table = lake.create_table("o.t", COLUMNS, time="ts", flush_age="off")
    table.append(rows(300))
    table.flush()
    (told_of,) = stored(lake, "o.t")
    told = orjson.loads(told_of)["extents"][0]
    file, place = Path(told["file"]), told["blocks"][0]["columns"][2]
    data = bytearray(file.read_bytes())
    data[place["at"] + place["len"] // 2] ^= 1
    file.chmod(0o644)
    file.write_bytes(data)
    with pytest.raises(Exception, match="checksum mismatch"):
        session.sql("SELECT bit_xor(k) FROM tidelake.o.t").collect()
    assert session.sql("SELECT count(code) FROM tidelake.o.t WHERE code > ''").collect()[0][0] == 300


def test_what_is_not_stored_as_spark_wants_it_is_left_to_python(session: SparkSession, lake: Lake) -> None:
    table = lake.create_table("o.t", COLUMNS, time="ts", flush_age="off")
    table.append(rows(300))
    table.flush()
    assert stored(lake, "o.t") != [b""]
    assert stored(lake, "o.t", where="n > 3") == [b""]
    assert stored(lake, "o.t", where="ts >= datetime(2026-01-01)") != [b""]  # which is so of all rows
    table.append([{"ts": "2026-03-02T00:00:00Z", "n": 5_000_000_000}])  # n is long from now on
    table.flush()
    session.sql("ALTER TABLE tidelake.o.t ADD COLUMN v VARIANT")
    assert b"" in stored(lake, "o.t")
    (found,) = session.sql("SELECT max(n), count(n) FROM tidelake.o.t WHERE code IS NULL").collect()
    assert tuple(found) == (5_000_000_000, 1)
    session.sql(
        "CREATE TABLE tidelake.o.parquet TBLPROPERTIES ('format' = 'parquet', 'time' = 'ts') "
        "AS SELECT ts, code FROM tidelake.o.t"
    )
    lake.table("o.parquet").flush()
    assert set(stored(lake, "o.parquet")) == {b""}
    assert session.table("tidelake.o.parquet").where("code > 'c050'").count() == 147
    with tidelake.connect(lake.where) as again:
        assert len(again.table("o.t")) == 301


@pytest.mark.parametrize("format", ["tlm2", "tlm3"])
def test_rows_that_are_null_are_read_by_a_schema_that_says_not_null(
    session: SparkSession, lake: Lake, format: str
) -> None:
    """Spark then asks for no nulls: it reads zeros, or what nulls are stored as, and nothing else."""
    table = lake.create_table("o.t", COLUMNS, time="ts", format=format, flush_age="off")
    table.append([{**row, "k": None, "text": None, "b": None} for row in rows(300)])
    table.flush()
    table.add_column("later", "long")
    table.add_column("said", "string")
    frame = session.read.format("tidelake").options(lake=lake.where, table="o.t")
    columns = ", ".join(f"{name} {kind} NOT NULL" for name, kind in [
        ("k", "BIGINT"), ("text", "STRING"), ("b", "BOOLEAN"), ("later", "BIGINT"), ("said", "STRING"),
    ])  # fmt: skip
    asked = "bit_xor(k)", "sum(length(text))", "count_if(b)", "bit_xor(later)", "max(said)"
    (found,) = frame.schema(columns).load().selectExpr(*asked).collect()
    assert tuple(found) in ((0, 0, 0, 0, ""), (None, None, 0, None, None))


@pytest.mark.parametrize("format", ["tlm2", "tlm3"])
def test_a_file_that_is_gone_or_cut_off_is_an_error_that_names_it(
    session: SparkSession, lake: Lake, format: str
) -> None:
    table = lake.create_table("o.t", COLUMNS, time="ts", format=format, flush_age="off")
    table.append(rows(300))
    table.flush()
    frame = session.sql("SELECT k FROM tidelake.o.t")
    (described_of,) = stored(lake, "o.t")
    file = Path(orjson.loads(described_of)["extents"][0]["file"])
    data = file.read_bytes()
    assert len(frame.collect()) == 300  # and so it is planned
    for left in (data[:20], b"", None):
        file.unlink()
        if left is not None:
            file.write_bytes(left)
        with pytest.raises(Exception, match=f"tidelake.*{file.name}"):
            frame.collect()
