"""Check how a table's schema follows its rows: promotion by hand and by rule, and fields that change their type."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import tidelake
from tidelake import dynamic
from tidelake.errors import SchemaError
from tidelake.ingest import Rules
from tidelake.lake import Lake
from tidelake.model.predicate import Nanoseconds
from tidelake.table import Table
from tidelake.write import drift

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def event_rows(count: int, first: int = 0) -> list[dict[str, Any]]:
    """Rows whose paths settle or do not: see the keys."""
    rows = []
    for n in range(first, first + count):
        inner: dict[str, Any] = {"always": n, "http": {"status": 200 + n % 2, "took": n * 0.5 if n % 2 else n}}
        inner["mixed"] = n if n % 2 else str(n)
        inner["list"] = [n]
        inner["nothing"] = None
        if n % 10 == 0:
            inner["tenth"] = f"t-{n}"
        if n % 12 == 0:
            inner["rare"] = True
        rows.append({"ts": NOON + timedelta(seconds=n), "attributes": inner})
    return rows


def events(lake: Lake, **settings: Any) -> Table:
    columns = {"ts": "timestamp", "attributes": "dynamic"}
    return lake.create_table("events", columns, time="ts", flush_age="off", **settings)


@pytest.mark.parametrize("flushed", [0, 600, 1_000])
def test_promotable_lists_paths_that_settled_on_one_type_in_the_newest_rows(lake: Lake, flushed: int) -> None:
    table = events(lake)
    table.append([{"ts": NOON, "attributes": {"old": n}} for n in range(500)])
    if flushed:
        table.append(event_rows(flushed))
        table.flush()
    for first in range(flushed, 1_000, 100):
        table.append(event_rows(100, first))
    assert [str(each) for each in table.promotable()] == [
        "attributes.always: long in 1,000 of the last 1,000 rows",
        "attributes.http.status: long in 1,000 of the last 1,000 rows",
        "attributes.http.took: real in 1,000 of the last 1,000 rows",
        "attributes.tenth: string in 100 of the last 1,000 rows",
    ]
    table.promote("attributes.http.status", "int")
    assert "attributes.http.status" not in {each.path for each in table.promotable()}


def test_promotable_of_nothing_is_nothing(lake: Lake) -> None:
    table = events(lake)
    assert table.promotable() == []
    table.append(event_rows(99))
    assert table.promotable() == []


def test_a_table_told_to_promote_does_so_and_unites_old_and_new(lake: Lake) -> None:
    table = events(lake, promote=True)
    table.append(event_rows(900))
    assert "always" not in table.schema
    table.flush()
    types = {column.name: str(column.type) for column in table.schema}
    assert {name: types.get(name) for name in ("always", "http_status", "http_took", "tenth", "rare", "mixed")} == {
        "always": "long",
        "http_status": "long",
        "http_took": "real",
        "tenth": None,
        "rare": None,
        "mixed": None,
    }
    table.append(event_rows(100, 900))
    found = table.scan(["http_status", "http_took"], "always >= 890", ordered=True).read_all()
    assert found["http_status"].to_pylist() == [200 + n % 2 for n in range(890, 1_000)]
    assert found["http_took"].to_pylist() == [n * 0.5 if n % 2 else float(n) for n in range(890, 1_000)]
    assert table.append(event_rows(1_500, 1_000)).extents == 1
    assert "tenth" in table.schema
    assert table.scan(["ts"], "tenth is not null").read_all().num_rows == 250
    assert table.scan(["ts"], "always == 77").read_all().num_rows == 1
    assert lake.table("events").snapshot.settings["promote"] is True


def test_promotion_takes_no_column_that_is_there(lake: Lake) -> None:
    table = events(lake, promote=True)
    table.add_column("always", "long")
    table.append(event_rows(200))
    table.flush()
    assert "http_status" in table.schema
    assert table.scan(["ts"], "always is null").read_all().num_rows == 200
    with pytest.raises(SchemaError, match="another name"):
        table.promote("attributes.always", "long")
    table.promote("attributes.always", "long", name="always_2")
    assert table.scan(["ts"], "always_2 == 5").read_all().num_rows == 1


@pytest.mark.parametrize("form", ["tlm", "parquet"])
def test_a_field_that_changes_its_type_keeps_its_column_and_every_value(
    lake: Lake, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few misfits: the typed column stays and keeps what fits; all else is in the overflow column."""
    table = lake.create_table("m", {"ts": "timestamp", "code": "long"}, time="ts", format=form, flush_age="off")
    monkeypatch.setattr(drift, "MIN_MISFITS", 100)
    table.append([{"ts": NOON - timedelta(hours=1), "code": 2**53 + 1}])  # which keeps the column from becoming real
    values: list[Any] = [1, 2, "three", 4.5, 5, {"six": 6}, [7], True, 9.0, 2**70, -11, None]
    for round in range(3):
        rows = [{"ts": NOON + timedelta(hours=round, seconds=n), "code": value} for n, value in enumerate(values)]
        assert table.append(rows).overflowed == 7
        if round < 2:
            table.flush()
    found = table.scan(["code", "_overflow"], ordered=True, dynamic="cbor").read_all().to_pylist()[1:]
    for at, row in enumerate(found):
        value = values[at % len(values)]
        held = None if row["_overflow"] is None else dynamic.decode(row["_overflow"])
        fits = type(value) is int and abs(value) < 2**63
        assert held == (None if fits or value is None else {"code": value})
        assert row["code"] == (value if fits or value == 9.0 else None)  # what equals a long is read as one
    asked = {
        "code > 2": 7,
        "code == 9": 3,
        "code is null": 3 * 7,
        "_overflow['code'] == 'three'": 3,
        "_overflow['code.six'] == 6": 3,
        "_overflow['code'] > 4 and _overflow['code'] < 5": 3,
        "code == 1 or _overflow['code'] == true": 6,
    }
    for where, count in asked.items():
        assert table.scan(["ts"], where).read_all().num_rows == count, where
        assert table.scan(["ts"], where, prune=False).read_all().num_rows == count, where


def test_a_value_that_came_before_its_column_is_read_with_it(lake: Lake) -> None:
    table = lake.create_table("m", {"ts": "timestamp"}, time="ts", flush_age="off")
    fillers = {f"f{n}": n for n in range(Rules().max_new_columns)}  # beyond which no key becomes a column
    table.append([{"ts": NOON, **fillers, "x": 5, "d": {"a": 1}}, {"ts": NOON, "x": "five"}])
    table.flush()
    table.append([{"ts": NOON, "x": 7}])
    table.add_column("d", "dynamic")
    table.append([{"ts": NOON, "d": [2]}])
    assert str(table.schema["x"].type) == "long"
    assert sorted(filter(None, table.scan(["x"]).read_all()["x"].to_pylist())) == [5, 7]
    assert table.scan(["ts"], "x == 5").read_all().num_rows == 1
    found = [
        dynamic.decode(value)
        for value in table.scan(["d"], dynamic="cbor").read_all()["d"].to_pylist()
        if value is not None
    ]
    assert sorted(map(str, found)) == ["[2]", "{'a': 1}"]
    assert table.scan(["ts"], "d['a'] == 1").read_all().num_rows == 1


@pytest.mark.parametrize("form", ["tlm", "parquet"])
@pytest.mark.parametrize("kind", ["int", "long"])
def test_a_column_of_whole_numbers_becomes_real_and_every_value_is_found(lake: Lake, form: str, kind: str) -> None:
    table = lake.create_table("m", {"ts": "timestamp", "price": kind}, time="ts", format=form, flush_age="off")
    table.append([{"ts": NOON, "price": n} for n in range(3)])
    table.flush()
    table.append([{"ts": NOON, "price": 3}])  # hot, and of whole numbers
    before = table.snapshot.sequence
    table.append([{"ts": NOON, "price": value} for value in (0.5, 3.5, 1)])
    assert str(table.schema["price"].type) == "real"
    for _ in range(2):
        assert sorted(table.scan(["price"]).read_all()["price"].to_pylist()) == [0.0, 0.5, 1.0, 1.0, 2.0, 3.0, 3.5]
        asked = {"price == 3.5": 1, "price == 1": 2, "price == 1.0": 2, "price > 0.4": 6, "price in (0.5, 2)": 2}
        for where, count in asked.items():
            assert table.scan(["ts"], where).read_all().num_rows == count, where
            assert table.scan(["ts"], where, prune=False).read_all().num_rows == count, where
        assert lake.sql(
            "select avg(price) a, min(price) l, max(price) h, count(price) c from m"
        ).to_arrow().to_pylist() == [{"a": 11 / 7, "l": 0.0, "h": 3.5, "c": 7}]
        table.flush()
    old = lake.table("m", snapshot=before)
    assert old.scan(["price"]).read_all()["price"].to_pylist() == [0, 1, 2, 3]
    assert str(old.schema["price"].type) == kind


def test_a_long_that_no_double_holds_keeps_its_column_long(lake: Lake) -> None:
    for flush in (False, True):
        table = lake.create_table(f"m{flush}", {"ts": "timestamp", "n": "long"}, time="ts", flush_age="off")
        table.append([{"ts": NOON, "n": 2**53 + 1}])
        if flush:
            table.flush()
        assert table.append([{"ts": NOON, "n": 0.5}]).overflowed == 1
        assert str(table.schema["n"].type) == "long"
        assert table.scan(["n"], f"n == {2**53 + 1}").read_all()["n"].to_pylist() == [2**53 + 1]
        with pytest.raises(SchemaError, match="a real cannot hold"):
            table.add_column("n", "real")


def test_add_column_widens_and_refuses_to_narrow(lake: Lake) -> None:
    table = lake.create_table("m", {"ts": "timestamp", "n": "int"}, time="ts", flush_age="off")
    table.append([{"ts": NOON, "n": 5}])
    for kind in ("long", "real"):
        assert str(table.add_column("n", kind)["n"].type) == kind
    for kind in ("int", "long", "string"):
        with pytest.raises(SchemaError, match="only widens"):
            table.add_column("n", kind)
    assert table.scan(["n"], "n == 5").read_all()["n"].to_pylist() == [5.0]


def test_a_column_becomes_real_only_over_rows_that_were_looked_at(lake: Lake) -> None:
    table = lake.create_table("m", {"ts": "timestamp", "n": "long"}, time="ts", flush_age="off")
    table.append([{"ts": NOON, "n": 1}])
    with tidelake.connect(lake.where) as other:
        theirs = other.table("m")

        class Overtaken(list[dict[str, Any]]):
            """Rows that another writer overtakes while they are read."""

            raced = False

            def __iter__(self) -> Iterator[dict[str, Any]]:
                if not self.raced:
                    self.raced = True
                    theirs.append([{"ts": NOON, "n": 2**53 + 1}])
                return super().__iter__()

        assert table.append(Overtaken([{"ts": NOON, "n": 0.5}])).overflowed == 1  # looked again, and stayed long
        assert str(table.schema["n"].type) == "long"
        fresh = lake.create_table("f", {"ts": "timestamp", "n": "long"}, time="ts", flush_age="off")
        fresh.append([{"ts": NOON, "n": 1}])
        stale = other.table("f")
        stale.append([{"ts": NOON, "n": 2}])
        fresh.append([{"ts": NOON, "n": 0.5}])  # which makes it real
        assert stale.append([{"ts": NOON, "n": 2**53 + 1}]).overflowed == 1  # on a head where it was long
        assert sorted(filter(None, fresh.scan(["n"]).read_all()["n"].to_pylist())) == [0.5, 1.0, 2.0]


def test_numbers_and_booleans_become_text_in_a_string_column(lake: Lake) -> None:
    table = lake.create_table("m", {"ts": "timestamp", "s": "string"}, time="ts", flush_age="off")
    values = ["x", 12, 0.5, True, -0.0, 2**70, 1e20]
    assert table.append([{"ts": NOON, "s": value} for value in values]).overflowed == 0
    lines = b"".join(b'{"ts":"2026-01-01T12:00:00Z","s":%s}\n' % text for text in (b"12", b"0.50", b"false", b"-0"))
    assert table.append(lines * 5_000).overflowed == 0
    found = table.scan(["s"]).read_all()["s"].to_pylist()
    assert set(found) == {"x", "12", "0.5", "true", "-0.0", str(2**70), "1e+20", "false", "0"}
    assert table.scan(["ts"], "s == '0.5'").read_all().num_rows == 5_001


def test_an_integer_that_no_double_holds_is_not_rounded_into_a_real_column(lake: Lake) -> None:
    table = lake.create_table("m", {"ts": "timestamp", "r": "real"}, time="ts", flush_age="off")
    table.append([{"ts": NOON, "r": 2**53 + 1}, {"ts": NOON, "r": 2**53}])
    assert table.scan(["r"]).read_all()["r"].to_pylist() == [None, 2.0**53]
    assert table.scan(["ts"], f"r == {2.0**53}").read_all().num_rows == 1
    assert table.scan(["ts"], f"_overflow['r'] == {2**53 + 1}").read_all().num_rows == 1


def test_flush_of_rows_without_a_vector_follows_a_wider_schema(lake: Lake) -> None:
    table = lake.create_table("m", {"ts": "timestamp", "v": "vector(2)"}, time="ts", flush_age="off")
    table.append([{"ts": NOON}, {"ts": NOON, "v": [1.0, 2.0]}])
    table.add_column("late", "long")
    assert table.flush().rows == 2
    assert table.scan(["v", "late"]).read_all().to_pydict() == {"v": [None, [1.0, 2.0]], "late": [None, None]}


def test_a_time_beyond_nanoseconds_is_asked_for_and_found(lake: Lake) -> None:
    table = lake.create_table("m", {"ts": "timestamp"}, time="ts", flush_age="off")
    for year in (1, 2026, 9999):
        table.append([{"ts": datetime(year, 6, 1, tzinfo=UTC)}])
        table.flush()
    for end, count in (("0001-01-01T00:00:00Z", 0), ("0002-01-01T00:00:00Z", 1), ("9999-12-31T00:00:00Z", 3)):
        assert table.scan(end=end).read_all().num_rows == count
    for start, count in (("0001-01-01T00:00:00Z", 3), ("9000-01-01T00:00:00Z", 1), ("9999-12-31T00:00:00Z", 0)):
        assert table.scan(start=start).read_all().num_rows == count
    for beyond in (Nanoseconds(10**30), Nanoseconds(-(10**30))):  # which no time reaches
        for where in (tidelake.col("ts") == beyond, tidelake.col("ts").isin([beyond])):
            assert table.scan(["ts"], where).read_all().num_rows == 0
            assert table.scan(["ts"], ~where).read_all().num_rows == 3


def test_a_set_with_nan_finds_it_beside_other_numbers(lake: Lake) -> None:
    table = lake.create_table("m", {"ts": "timestamp", "r": "real"}, time="ts", flush_age="off")
    table.append([{"ts": NOON, "r": 5.0}, {"ts": NOON, "r": float("nan")}])
    table.flush()
    for values in ([1.0, float("nan")], [float("nan"), 1.0]):
        assert table.scan(["ts"], tidelake.col("r").isin(values)).read_all().num_rows == 1


def test_a_column_becomes_real_with_rows_that_fill_an_extent(lake: Lake) -> None:
    times = [NOON + timedelta(seconds=n) for n in range(2000)]
    lake.ingest("app.t", [{"ts": time, "n": n} for n, time in enumerate(times)])
    report = lake.ingest("app.t", [{"ts": time, "n": n + 0.5} for n, time in enumerate(times)])
    table = lake.table("app.t")
    assert (report.extents, report.overflowed, str(table.schema["n"].type)) == (1, 0, "real")
    assert sorted(table.scan(["n"]).read_all().column("n").to_pylist()) == [n / 2 for n in range(4000)]
