"""Tables end to end: append, scan, evolve, flush, travel in time, on a folder lake."""

from __future__ import annotations

import json
import multiprocessing
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import orjson
import pandas
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidelake
from tidelake import dynamic
from tidelake.errors import InvalidInputError, InvalidRangeError, NotFoundError, QueryError, SchemaError
from tidelake.lake import Lake
from tidelake.model.schema import DYNAMIC_FIELD
from tidelake.model.settings import extent_format
from tidelake.scan import block_reading
from tidelake.table import Table

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
LOGS = {"ts": "timestamp", "service": "string", "status": "int", "message": "string", "attributes": "dynamic"}


@pytest.fixture
def logs(lake: Lake) -> Table:
    return lake.create_table("obs.logs", LOGS, time="ts")


def log_rows(count: int, *, start: datetime = NOON, step: timedelta = timedelta(seconds=1)) -> list[dict[str, Any]]:
    words = ["connection", "reset", "timeout", "accepted", "OutOfMemoryError", "retry"]
    return [
        {
            "ts": start + n * step,
            "service": f"svc-{n % 5}",
            "status": 200 + n % 4 * 100,
            "message": f"{words[n % len(words)]} by peer {n}",
            "attributes": {"http": {"status": 200 + n % 4 * 100}, "user.id": f"u-{n % 7}"},
        }
        for n in range(count)
    ]


def many(count: int, **options: Any) -> pa.Table:
    """Rows enough to be written as an extent at once."""
    rows = log_rows(count, **options)
    for row in rows:
        row["attributes"] = dynamic.encode(row["attributes"])
    schema = pa.schema(
        [
            ("ts", pa.timestamp("us", tz="UTC")),
            ("service", pa.utf8()),
            ("status", pa.int32()),
            ("message", pa.utf8()),
            pa.field("attributes", pa.binary(), metadata=DYNAMIC_FIELD),
        ]
    )
    return pa.Table.from_pylist(rows, schema=schema)


def test_append_is_visible_at_once_and_hot_when_small(logs: Table) -> None:
    report = logs.append(log_rows(10))
    assert (report.rows, report.extents, report.replayed) == (10, 0, False)
    assert logs.scan(["status"]).read_all().num_rows == 10
    assert logs.snapshot.totals.hot_rows == 10


def test_append_writes_extents_when_large(logs: Table) -> None:
    report = logs.append(many(5_000))
    assert (report.rows, report.extents) == (5_000, 1)
    assert [(e.row_count, e.format) for e in logs.extents()] == [(5_000, extent_format("tlm"))]
    assert logs.scan().read_all().num_rows == 5_000


def test_append_gives_the_first_answer_again_when_a_key_is_used_twice(logs: Table) -> None:
    first = logs.append(log_rows(10), key="batch-1")
    again = logs.append(log_rows(10), key="batch-1")
    assert (again.replayed, again.rows, again.snapshot) == (True, 10, first.snapshot)
    assert logs.scan().read_all().num_rows == 10


def test_append_takes_arrow_dicts_bytes_and_files(logs: Table, tmp_path: Path) -> None:
    rows = [{**row, "ts": row["ts"].isoformat()} for row in log_rows(3)]
    ndjson = b"\n".join(map(orjson.dumps, rows))
    (tmp_path / "rows.ndjson").write_bytes(ndjson)
    pq.write_table(many(3), tmp_path / "rows.parquet")
    sources: list[Any] = [many(3), log_rows(3), ndjson, tmp_path / "rows.ndjson", str(tmp_path / "rows.parquet")]
    for source in sources:
        logs.append(source)
    scanned = logs.scan(ordered=True, dynamic="cbor").read_all().to_pylist()
    expected = sorted((row for _ in sources for row in many(3).to_pylist()), key=lambda row: row["ts"])
    assert scanned == expected


def test_scan_prunes_by_time_equality_word_and_path(logs: Table) -> None:
    for hour in range(10):
        rows = log_rows(1_200, start=NOON + timedelta(hours=hour))
        for row in rows:
            row["service"] = f"svc-{hour}"
            row["attributes"] = dynamic.encode({"region": f"r-{hour}"})
        logs.append(pa.Table.from_pylist(rows, schema=many(1).schema))
    cases = {
        "service == 'svc-3'": (1, 1_200),
        "service in ('svc-3', 'svc-4')": (2, 2_400),
        "service == 'nowhere'": (0, 0),
        "attributes['region'] == 'r-7'": (1, 1_200),
        "exists(attributes['nothing'])": (0, 0),
        "message contains 'outofmem'": (10, 2_000),
        "message has 'xylophone'": (0, 0),
    }
    for where, (extents, rows_found) in cases.items():
        plan = logs.plan(where=where)
        assert len(plan.tasks) == extents, plan.explain()
        assert logs.scan(["ts"], where).read_all().num_rows == rows_found
        assert logs.scan(["ts"], where, prune=False).read_all().num_rows == rows_found
    start, end = NOON + timedelta(hours=2), NOON + timedelta(hours=3)
    assert len(logs.plan(start=start, end=end).tasks) == 1
    assert logs.scan(["ts"], start=start, end=end).read_all().num_rows == 1_200


def test_explain_draws_a_funnel(logs: Table) -> None:
    logs.append(many(5_000))
    text = logs.plan(["message"], "service == 'svc-1' and status >= 300").explain()
    assert "where    (service == 'svc-1' and status >= 300)" in text
    stages = [line[2:20].rstrip() for line in text.splitlines()[3:9]]
    assert stages == ["snapshot", "catalog", "time bounds", "extent statistics", "block statistics", "needed columns"]
    assert logs.plan().to_json()["stages"][-1]["blocks"] == 1


def test_scan_finds_a_single_row_by_every_time_query_that_should(logs: Table) -> None:
    logs.append(many(1_500, step=timedelta(0)))
    at, after = NOON, NOON + timedelta(microseconds=1)
    assert logs.scan(start=at, end=after).read_all().num_rows == 1_500
    assert logs.scan(start=at).read_all().num_rows == 1_500
    assert logs.scan(end=after).read_all().num_rows == 1_500
    assert logs.scan(end=at).read_all().num_rows == 0
    assert logs.scan(start=after).read_all().num_rows == 0


def test_scan_is_in_time_order_across_extents_and_hot_rows(logs: Table) -> None:
    rng = random.Random(7)
    rows = log_rows(6_000)
    rng.shuffle(rows)
    for start in range(0, 6_000, 2_000):
        part = [{**row, "attributes": dynamic.encode(row["attributes"])} for row in rows[start : start + 2_000]]
        logs.append(pa.Table.from_pylist(part, schema=many(1).schema))
    logs.append(log_rows(5, start=NOON + timedelta(seconds=100)))
    times = logs.scan(["ts"], ordered=True).read_all()["ts"].to_pylist()
    assert times == sorted(times)
    assert len(times) == 6_005
    assert logs.scan(["ts"], ordered=True, limit=7).read_all()["ts"].to_pylist() == times[:7]


def test_unknown_fields_widen_the_schema_and_old_rows_read_null(logs: Table) -> None:
    logs.append(log_rows(2))
    logs.append([{**row, "region": "eu", "nested": {"a": [1]}} for row in log_rows(2, start=NOON + timedelta(hours=1))])
    table = logs.scan(["region", "nested"], ordered=True, dynamic="cbor").read_all()
    assert table["region"].to_pylist() == [None, None, "eu", "eu"]
    held = [value and dynamic.decode(value) for value in table["nested"].to_pylist()]
    assert held == [None, None, {"a": [1]}, {"a": [1]}]


def test_a_value_that_fits_no_column_is_kept_and_never_rejects_the_row(logs: Table) -> None:
    rows = log_rows(3)
    rows[1]["status"] = "broken"
    report = logs.append(rows)
    assert (report.rows, report.overflowed) == (3, 1)
    table = logs.scan(["status", "_overflow"], ordered=True, dynamic="cbor").read_all()
    assert table["status"].to_pylist() == [200, None, 400]
    assert dynamic.decode(table["_overflow"].to_pylist()[1]) == {"status": "broken"}
    assert logs.scan(where="_overflow['status'] == 'broken'").read_all().num_rows == 1


def test_promote_unites_old_dynamic_and_new_typed_values(logs: Table) -> None:
    logs.append(many(2_000))
    logs.promote("attributes.http.status", "int", name="code")
    logs.append(log_rows(8, start=NOON + timedelta(days=1)))
    codes = logs.scan(["status", "code"]).read_all()
    assert codes["code"].to_pylist() == codes["status"].to_pylist()
    for where in ("code == 300", "code > 400", "code in (200, 500)", "not code == 200"):
        wanted = logs.scan(["ts"], where.replace("code", "status"), ordered=True).read_all()
        assert logs.scan(["ts"], where, ordered=True).read_all() == wanted
        assert logs.scan(["ts"], where, ordered=True, prune=False).read_all() == wanted


def test_schema_refuses_to_narrow(logs: Table) -> None:
    logs.add_column("count", "int")
    logs.add_column("count", "long")
    for kind in ("string", "int"):
        with pytest.raises(SchemaError, match="only widens"):
            logs.add_column("count", kind)
    assert str(logs.schema["count"].type) == "long"


def test_time_travel_sees_the_old_rows_and_the_old_schema(lake: Lake, logs: Table) -> None:
    first = logs.append(log_rows(5))
    logs.append([{**row, "region": "eu"} for row in log_rows(5)])
    old = lake.table("obs.logs", snapshot=first.snapshot)
    assert old.scan().read_all().num_rows == 5
    assert "region" not in old.schema
    assert lake.table("obs.logs", as_of=datetime.now(UTC)).scan().read_all().num_rows == 10
    with pytest.raises(InvalidInputError, match="can only be read"):
        old.append(log_rows(1))


def test_flush_turns_hot_rows_into_one_extent(logs: Table) -> None:
    for n in range(5):
        logs.append(log_rows(10, start=NOON + timedelta(hours=n)))
    before = logs.scan(ordered=True).read_all()
    report = logs.flush()
    assert (report.rows, report.extents) == (50, 1)
    assert (logs.snapshot.totals.hot_rows, len(logs.extents())) == (0, 1)
    assert logs.scan(ordered=True).read_all() == before
    assert logs.flush().rows == 0


def test_history_names_every_commit(logs: Table) -> None:
    logs.append(log_rows(1))
    logs.append(many(1_500))
    logs.flush()
    assert [(s.sequence, s.operation) for s in logs.history()] == [
        (4, "flush"),
        (3, "append"),
        (2, "append"),
        (1, "create"),
    ]


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("servce == 'x'", "servce"),
        ("status == 'x'", "status"),
        ("status ==", "where"),
        ("message has 5", ""),
    ],
)
def test_scan_says_what_is_wrong_with_where(logs: Table, where: str, message: str) -> None:
    with pytest.raises(QueryError):
        logs.scan(where=where)


def test_bad_input_changes_nothing(logs: Table) -> None:
    bad: dict[str, Any] = {
        "malformed line": b'{"ts": "2026-01-01T00:00:00Z"}\n{"ts": ',
        "null time": [{"service": "a"}],
        "not rows": 5,
        "a dict": {"ts": 1},
    }
    for source in bad.values():
        with pytest.raises((InvalidInputError, SchemaError)):
            logs.append(source)
    assert logs.snapshot.sequence == 1
    with pytest.raises(NotFoundError):
        logs.append(Path("nowhere.ndjson"))
    with pytest.raises(NotFoundError):
        logs.scan(["nothing"])
    with pytest.raises(InvalidRangeError):
        logs.scan(start=NOON, end=NOON)


def test_append_of_nothing_commits_nothing(logs: Table) -> None:
    assert logs.append([]).rows == 0
    assert logs.append(b"").rows == 0
    assert logs.snapshot.sequence == 1


def test_lake_refuses_a_folder_that_holds_something_else(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("do not touch")
    with pytest.raises(InvalidInputError, match="not a lake"):
        tidelake.connect(tmp_path)
    with pytest.raises(InvalidInputError, match="is not a lake"):
        tidelake.connect("mysql://host/db")


def test_lake_lists_and_drops_tables(lake: Lake, logs: Table) -> None:
    lake.create_table("plain", {"n": "long"})
    assert lake.tables() == ["default.plain", "obs.logs"]
    lake.drop_table("plain")
    assert lake.tables() == ["obs.logs"]
    with pytest.raises(NotFoundError):
        lake.table("plain")


def _append_in_process(folder: str, worker: int, count: int) -> None:
    with tidelake.connect(folder) as lake:
        table = lake.table("obs.logs")
        for n in range(count):
            table.append(log_rows(10, start=NOON + timedelta(hours=worker, minutes=n)), key=f"{worker}-{n}")


def test_processes_append_side_by_side_and_nothing_is_lost_or_doubled(lake: Lake, logs: Table) -> None:
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_append_in_process, args=(lake.where, w, 10)) for w in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
    assert [worker.exitcode for worker in workers] == [0, 0, 0, 0]
    times = logs.scan(["ts"]).read_all()["ts"].to_pylist()
    assert len(times) == 400
    assert len(set(times)) == 400


def test_other_engines_read_a_table_with_pruning_applied(logs: Table) -> None:
    logs.append(many(2_000))
    with duckdb.connect() as connection:
        counted = logs.to_duckdb(connection, ["status"], "service == 'svc-1'").aggregate("count(*)").fetchall()
    assert counted == [(400,)]
    assert logs.to_polars(["status"], "service == 'svc-1'").height == 400
    assert polars.DataFrame(logs).height == 2_000
    assert pa.RecordBatchReader.from_stream(logs).read_all().num_rows == 2_000


def test_two_writers_that_widen_a_field_differently_both_succeed(lake: Lake, logs: Table) -> None:
    other = tidelake.connect(lake.where)
    theirs = other.table("obs.logs")
    row = log_rows(1)[0]

    class Slow(list[dict[str, Any]]):
        """Rows that another writer overtakes while they are read."""

        raced = False

        def __iter__(self) -> Iterator[dict[str, Any]]:
            if not self.raced:
                self.raced = True
                theirs.append([{**row, "fresh": "text"}])
            return super().__iter__()

    report = logs.append(Slow([{**row, "fresh": 5}]))
    other.close()
    assert (report.rows, report.overflowed) == (1, 0)
    assert sorted(logs.scan(["fresh"]).read_all()["fresh"].to_pylist()) == ["5", "text"]


def test_scan_reads_wide_columns_only_where_a_row_matches(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    made = lake.create_table("wide", {"ts": "timestamp", "n": "long", "body": "string", "late": "string"})
    rows = [{"ts": NOON, "n": n * 2, "body": f"{n:06}" * 200} for n in range(5_000)]
    made.append(rows)
    made.add_column("extra", "string")
    read: list[tuple[str, ...]] = []
    reader = lake.handle.footers.open(made.extents()[0])
    original = type(reader).read_block

    def watched(self: Any, block: int, columns: Any = None) -> Any:
        read.append(tuple(columns))
        return original(self, block, columns)

    monkeypatch.setattr(type(reader), "read_block", watched)
    assert made.scan(["body", "extra"], "n == 4001").read_all().num_rows == 0  # between two that are there
    assert read == []  # told by statistics
    monkeypatch.setattr(block_reading, "LATE_BYTES", 1)
    assert made.scan(["body", "extra"], "n in (1, 3) or n > 9996").read_all().to_pylist() == [
        {"body": rows[4_999]["body"], "extra": None}
    ]
    assert read == [("n",), ("body",)]
    read.clear()
    assert made.scan(["body"], "n > 6 and n < 8").read_all().num_rows == 0
    assert read[-1] == ("n",)


VALUES = [{"a": 1, "b": "x\ny"}, None, 5, "hi", [1, 2.5], {"a": {"c": 1e300}}, True, {"é": [None, {"z": -1}]}]


@pytest.fixture
def mixed(lake: Lake) -> Table:
    table = lake.create_table("mixed", {"ts": "timestamp", "d": "dynamic"})
    table.append([{"ts": NOON + timedelta(seconds=n), "d": value} for n, value in enumerate(VALUES)])
    return table


def test_dynamic_values_leave_as_json_text_by_every_way(mixed: Table) -> None:
    texts = [
        None if value is None else json.dumps(value, separators=(",", ":"), ensure_ascii=False) for value in VALUES
    ]
    assert mixed.to_arrow()["d"].to_pylist() == texts
    assert mixed.scan(ordered=True).read_all()["d"].to_pylist() == texts
    assert pa.table(mixed)["d"].to_pylist() == texts
    assert mixed.to_polars()["d"].to_list() == texts
    assert mixed.to_pandas()["d"].tolist() == texts
    with duckdb.connect() as connection:
        assert [row[0] for row in mixed.to_duckdb(connection, ["d"]).fetchall()] == texts


def test_dynamic_values_are_decoded_from_either_form(mixed: Table) -> None:
    for form in ("json", "cbor"):
        column = mixed.to_arrow(dynamic=form)["d"]
        assert tidelake.decode(column) == VALUES
        assert tidelake.decode(column.to_pylist()) == VALUES
        assert tidelake.decode(mixed.to_polars(dynamic=form)["d"]) == VALUES
        assert [text and json.loads(text) for text in tidelake.decode(column, "json")] == VALUES


def test_dynamic_values_of_one_type_are_structs_if_asked(mixed: Table) -> None:
    table = mixed.to_arrow(where="d.a == 1", dynamic="struct")
    assert table["d"].to_pylist() == [VALUES[0]]
    assert table.schema.field("d").type == pa.struct({"a": pa.int64(), "b": pa.string()})
    with pytest.raises(InvalidInputError, match="several types at a path"):
        mixed.to_arrow(dynamic="struct")
    with pytest.raises(InvalidInputError, match="known before its rows"):
        mixed.scan(dynamic="struct")
    with pytest.raises(InvalidInputError, match="dynamic is one of json, struct, cbor"):
        mixed.scan(dynamic="xml")


def test_what_was_read_can_be_appended_again(lake: Lake, mixed: Table) -> None:
    copy = lake.create_table("copy", {"ts": "timestamp", "d": "dynamic"})
    copy.append(mixed.scan())
    lake.ingest("asked", lake.sql("select * from mixed").to_arrow())
    for table in (copy, lake.table("asked")):
        assert str(table.schema["d"].type) == "dynamic"
        assert tidelake.decode(table.scan(ordered=True).read_all()["d"]) == VALUES
    plain = lake.create_table("plain", {"ts": "timestamp", "d": "dynamic"})
    plain.append([{"ts": NOON, "d": '{"a": 1}'}])  # a text that nobody marked is a text
    assert tidelake.decode(plain.to_arrow()["d"]) == ['{"a": 1}']


def test_a_table_has_a_length_and_is_something_without_rows(lake: Lake, mixed: Table) -> None:
    assert len(mixed) == len(VALUES)
    mixed.flush()
    assert len(mixed) == len(VALUES)
    empty = lake.create_table("empty", {"ts": "timestamp"})
    assert (len(empty), bool(empty)) == (0, True)


def test_a_lake_can_be_in_ones_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with tidelake.connect("~/lake") as lake:
        assert lake.where == str(tmp_path / "lake")
    assert [path.name for path in tmp_path.iterdir()] == ["lake"]


def test_columns_can_be_named_by_pythons_types(lake: Lake) -> None:
    table = lake.create_table("py", {"ts": datetime, "n": int, "x": float, "s": str, "ok": bool, "d": dict})
    assert [str(column.type) for column in table.schema] == ["timestamp", "long", "real", "string", "bool", "dynamic"]
    for bad in ({"x": object}, {"x": None}, [("x", "int")]):
        with pytest.raises(SchemaError, match=r"not a type|a mapping of names"):
            lake.create_table("bad", bad)  # type: ignore[arg-type]


def test_frames_of_others_give_rows_or_a_clear_error(lake: Lake) -> None:
    kinds: list[Any] = [polars.Categorical, polars.Enum(["a", "b"])]
    for number, kind in enumerate(kinds):
        frame = polars.DataFrame({"ts": [NOON] * 2, "k": polars.Series(["a", "b"], dtype=kind)})
        lake.ingest(f"frame{number}", frame)
        assert lake.table(f"frame{number}").to_arrow()["k"].to_pylist() == ["a", "b"]
    with pytest.raises(InvalidInputError, match="give it one type"):
        lake.ingest("mixed_frame", pandas.DataFrame({"ts": [NOON] * 2, "k": [1, "x"]}))
    with pytest.raises(InvalidInputError, match="Python objects"):
        lake.ingest("objects", polars.DataFrame({"ts": [NOON], "k": polars.Series([object()], dtype=polars.Object)}))
    with pytest.raises(SchemaError, match="a duration to int64"):
        lake.ingest("waits", polars.DataFrame({"ts": [NOON], "k": [timedelta(seconds=1)]}))
    assert lake.tables() == ["default.frame0", "default.frame1"]


def test_results_are_iterated_as_dicts_and_nouns_show_as_html(lake: Lake, mixed: Table) -> None:
    rows = list(lake.sql("select d from mixed order by ts"))
    assert rows == [{"d": value} for value in VALUES]
    assert "<td>d</td><td>dynamic</td>" in mixed._repr_html_()
    assert "<td>default.mixed</td>" in lake._repr_html_()


@pytest.mark.parametrize("value", [-0.0, 0.0, 5e-324, -5e-324, 1.7976931348623157e308, float("inf"), float("-inf")])
def test_any_real_can_be_the_bound_of_an_extent(tmp_path: Path, value: float) -> None:
    with tidelake.connect(tmp_path) as lake:
        table = lake.create_table("t", {"ts": "timestamp", "x": "real"})
        table.append([{"ts": datetime(2026, 3, 14, tzinfo=UTC), "x": value}])
        table.flush()
        assert table.scan(["x"], tidelake.col("x") == value).read_all()["x"].to_pylist() == [value]
        assert table.scan(["x"], tidelake.col("x") != value).read_all().num_rows == 0
