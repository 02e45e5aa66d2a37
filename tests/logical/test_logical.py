"""Show that what a column means comes back as it went in, and that questions about it prune and lose nothing."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, localcontext
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidelake
from tidelake.dynamic.values import decode
from tidelake.errors import QueryError, SchemaError
from tidelake.ingest import infer_schema
from tidelake.logical import fitted, shown, stored
from tidelake.logical.values import decimal_text
from tidelake.model.logical_types import Logical, decimal
from tidelake.model.schema import DataType, Schema

NESTED = pa.struct(
    [
        ("a", pa.int32()),
        ("b", pa.list_(pa.string())),
        ("m", pa.map_(pa.string(), pa.struct([("d", pa.date32()), ("x", pa.decimal128(30, 5))]))),
        ("of numbers", pa.map_(pa.int64(), pa.float32())),
        ("t", pa.timestamp("us", tz="UTC")),
        ("n", pa.timestamp("us")),
        ("raw", pa.binary()),
        ("flag", pa.bool_()),
        ("small", pa.int8()),
    ]
)
NTZ, NINES, TEXT_TO_LONG = pa.timestamp("us"), "9" * 38, pa.map_(pa.string(), pa.int64())
ARROW: dict[str, pa.Array] = {
    "date": pa.array([date(2024, 2, 29), None, date(1899, 12, 31), date(9999, 12, 31)]),
    "timestamp_ntz": pa.array([datetime(2024, 3, 10, 2, 30), None, datetime(1, 1, 1), datetime.max], NTZ),
    "decimal(10,2)": pa.array([Decimal("1225.5"), None, Decimal("-0.01"), Decimal("999999.99")], pa.decimal128(10, 2)),
    "decimal(18,0)": pa.array([Decimal(10**18 - 1), None, Decimal(1 - 10**18), Decimal(0)], pa.decimal128(18, 0)),
    "decimal(38,5)": pa.array(
        [Decimal("123456789012345678901234567890123.12345"), None, Decimal("-0.00001"), Decimal(0)],
        pa.decimal128(38, 5),
    ),
    "decimal(38,38)": pa.array([Decimal("0." + NINES), None, Decimal("-0." + NINES), None], pa.decimal128(38, 38)),
    "binary": pa.array([b"\x00\xff", None, b"", b"x" * 70_000]),
    "struct<a:int,b:array<string>>": pa.array(
        [{"a": 1, "b": ["x", None]}, None, {"a": None, "b": None}, {"a": -(2**31), "b": []}],
        pa.struct([("a", pa.int32()), ("b", pa.list_(pa.string()))]),
    ),
    "array<real>": pa.array([[1.5, None, float("inf")], None, [], [-0.0]], pa.list_(pa.float64())),
    "map<string,long>": pa.array([[("a", 1), ("b", None)], None, [], [("", 2**63 - 1)]], TEXT_TO_LONG),
    "deep": pa.array(
        [
            {"a": 1, "b": ["é"], "m": [("k", {"d": date(2024, 1, 1), "x": Decimal("1.50000")}), ("z", None)],
             "of numbers": [(5, 0.5), (-1, None)], "t": datetime(2024, 1, 1, 12, tzinfo=UTC),
             "n": datetime(2024, 1, 1, 12, 0, 0, 5), "raw": b"\x01", "flag": False, "small": -128},
            None, {}, {"m": []},
        ],
        NESTED,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ARROW)
def test_values_come_back_in_their_own_type(name: str) -> None:
    array = ARROW[name]
    logical = Logical.from_arrow(array.type)
    assert logical is not None
    assert Logical.parse(str(logical)) == logical
    assert logical.arrow == array.type
    kind = DataType.of(logical)
    for part in (array, array.slice(1), array.slice(0, 0), array.filter(array.is_valid())):
        kept = stored(part, kind)
        assert kept.type == kind.arrow
        assert shown(kept, kind).equals(part)


@pytest.mark.parametrize("format", ["tlm2", "tlm3", "parquet"])
def test_a_table_of_all_logical_types_reads_as_it_was_written(lake: tidelake.Lake, format: str) -> None:
    rows = pa.table({"ts": pa.array([datetime(2024, 1, 1, tzinfo=UTC)] * 4), **ARROW})
    schema, time = infer_schema(rows)
    assert [str(column.type) for column in schema][1:-1] == list(ARROW)[:-1]
    table = lake.create_table("s.all", schema, time=time, format=format)
    assert table.append(rows).overflowed == 0
    for extents in (0, 1):
        assert len(table.extents()) == extents
        assert table.to_arrow().equals(rows)
        assert table.to_arrow().schema == rows.schema
        table.flush()
    assert tidelake.connect(lake.where).table("s.all").schema == schema
    assert Schema.from_json(schema.to_json()) == schema


def test_old_readers_find_the_stored_type_where_it_was() -> None:
    [shape] = Schema.of({"day": "date"}).to_json()["columns"]
    assert shape == {"id": 1, "name": "day", "type": "int", "nullable": True, "logical": "date"}
    plain = {key: value for key, value in shape.items() if key != "logical"}
    assert Schema.from_json({"version": 1, "columns": [plain]})["day"].type == DataType("int")


def test_a_log_keeps_logical_types(tmp_path: Path) -> None:
    log = tidelake.connect(f"log:{tmp_path / 'prices'}")
    columns = {"ts": "timestamp", "day": "date", "price": "decimal(18,2)"}
    [row] = [{"ts": "2024-01-01T00:00:00Z", "day": date(2024, 1, 1), "price": Decimal("12.50")}]
    log.create_table("prices", columns, time="ts").append([row])
    table = tidelake.connect(f"log:{tmp_path / 'prices'}").table("prices")
    assert [str(column.type) for column in table.schema] == list(columns.values())
    assert table.to_arrow(["day", "price"]).to_pylist() == [{"day": row["day"], "price": row["price"]}]


@pytest.mark.parametrize(
    "text",
    ["decimal(39,2)", "decimal(2,3)", "struct<>", "struct<a:int", "array<foo>", "map<int>", "array<int,int>",
     "struct<a:int,A:int>", "map<array<int>,int>", "dates", "array<vector(3)>", "array<dynamic>"],
)  # fmt: skip
def test_what_is_no_type_is_refused(text: str) -> None:
    with pytest.raises(SchemaError):
        DataType.parse(text)


@pytest.mark.parametrize(
    ("kind", "fits", "misfits"),
    [
        ("date", ["2024-02-29"], ["2023-02-29", "nope", 5, 1.5, "2024-02-29T00:00:00Z", True, {"a": 1}]),
        ("timestamp_ntz", ["2024-01-01T00:00:00", "2024-01-01 00:00:00.5", "2024-01-01"], ["2024-01-01T00:00:00Z", 5]),
        ("decimal(4,2)", [1, 12.34, "99.99", "-.5", "1e1"], [100, 12.345, "x", "1e400", True, "NaN", " 1", 0.1 + 0.2]),
        ("binary", [b"x"], ["x", 5, [1]]),
        (
            "struct<a:int,b:array<string>>",
            [{}, {"a": 5}, {"b": [None, "x"]}],
            [[], {"c": 1}, {"a": "x"}, {"b": [1]}, 5],
        ),
        ("array<tinyint>", [[], [127, None]], [[128], {"a": 1}, ["x"], [1.5]]),
        ("map<string,real>", [{}, {"a": 1}, {"a": None}], [{"a": "x"}, [1], [["a"]], [[None, 1]]]),
        ("map<long,string>", [[[1, "x"]], []], [[["x", "x"]], {"a": "x"}]),
    ],
)
def test_what_does_not_fit_overflows(lake: tidelake.Lake, kind: str, fits: list[Any], misfits: list[Any]) -> None:
    table = lake.create_table("s.t", {"n": "long", "v": kind})
    report = table.append([{"n": n, "v": value} for n, value in enumerate([*fits, *misfits])])
    assert report.overflowed == len(misfits)
    rows = table.scan(["n", "v", "_overflow"], dynamic="cbor").read_all().to_pylist()
    assert [row["v"] is None for row in rows] == [False] * len(fits) + [True] * len(misfits)
    assert [decode(row["_overflow"])["v"] for row in rows[len(fits) :]] == misfits
    for _ in range(2):  # hot rows, and an extent's statistics
        [said] = lake.sql("select v from s.t").warnings
        assert said.startswith(f"{len(misfits)} value")
        assert f"not fit its type, {kind}," in said
        table.flush()
    json_fits = [value for value in fits if not isinstance(value, bytes)]
    lines = b"\n".join(orjson.dumps({"v": value}) for value in json_fits)
    if json_fits:
        assert table.append(lines).overflowed == 0


def test_wall_clocks_take_no_instants(lake: tidelake.Lake) -> None:
    table = lake.create_table("s.t", {"local": "timestamp_ntz"})
    noon = datetime(2024, 1, 1, 12)
    assert table.append([{"local": noon}, {"local": noon.replace(tzinfo=UTC)}]).overflowed == 1
    assert table.append(pa.table({"local": pa.array([noon], pa.timestamp("us", tz="Asia/Kolkata"))})).overflowed == 1
    assert table.append(pa.table({"local": pa.array([noon, None], pa.timestamp("ns"))})).overflowed == 0
    assert [row for row in table.to_arrow()["local"].to_pylist() if row] == [noon, noon]


@given(st.lists(st.integers(-(10**38) + 1, 10**38 - 1), min_size=2, max_size=50))
@settings(max_examples=200, deadline=None)
def test_texts_of_large_decimals_sort_as_the_numbers_do(numbers: list[int]) -> None:
    assert [decimal_text(number) for number in sorted(numbers)] == sorted(map(decimal_text, numbers))
    kind = DataType.of(decimal(38, 0))
    with localcontext(prec=50):
        array = pa.array([Decimal(number) for number in numbers], pa.decimal128(38, 0))
    kept = stored(array, kind)
    assert kept.to_pylist() == [decimal_text(number) for number in numbers]
    assert shown(kept, kind).equals(array)


DAYS = [date(2024, 1, 1) + timedelta(days=n) for n in range(40)]
ASKED: list[tuple[str, Any]] = [
    ("day == '2024-01-05'", lambda r: r["day"] == date(2024, 1, 5)),
    ("day >= datetime(2024-01-05T00:00:01)", lambda r: r["day"] > date(2024, 1, 5)),
    ("day <= datetime(2024-01-05T00:00:01)", lambda r: r["day"] <= date(2024, 1, 5)),
    ("day == datetime(2024-01-05T00:00:01)", lambda r: False),
    ("not (day == datetime(2024-01-05T00:00:01))", lambda r: r["day"] is not None),
    ("day in ('2024-01-05', '2024-02-01', '2030-01-01')", lambda r: r["day"] in (date(2024, 1, 5), date(2024, 2, 1))),
    ("price == 12.5", lambda r: r["price"] == Decimal("12.5")),
    ("price > 12.505", lambda r: r["price"] > Decimal("12.505")),
    ("price < -1e30", lambda r: False),
    ("price >= '3.5'", lambda r: r["price"] >= Decimal("3.5")),
    ("big == '-5.00001'", lambda r: r["big"] == Decimal("-5.00001")),
    ("big < 0", lambda r: r["big"] < 0),
    ("-3 <= big <= 3", lambda r: -3 <= r["big"] <= 3),
    ("local >= datetime(2024-01-05T12:00:00)", lambda r: r["local"] >= datetime(2024, 1, 5, 12)),
    ("st['a'] == 7", lambda r: r["st"]["a"] == 7),
    ("raw is null", lambda r: r["raw"] is None),
]


@pytest.fixture
def asked(tmp_path: Path) -> tuple[tidelake.Table, list[dict[str, Any]]]:
    rows: list[dict[str, Any]] = [
        {"n": n, "day": day, "local": datetime(day.year, day.month, day.day, 12), "price": Decimal(n) * Decimal("1.25"),
         "big": Decimal(n - 20) - Decimal("0.00001"), "st": {"a": n}, "raw": bytes([n])}
        for n, day in enumerate(DAYS)
    ]  # fmt: skip
    kinds = {"n": "long", "day": "date", "local": "timestamp_ntz", "price": "decimal(10,2)", "big": "decimal(38,5)",
             "st": "struct<a:long>", "raw": "binary"}  # fmt: skip
    table = tidelake.connect(tmp_path / "lake").create_table("s.t", kinds)
    for start in range(0, len(rows), 5):
        table.append([*rows[start : start + 5], {"n": -1}])
        table.flush()
    return table, rows


@pytest.mark.parametrize(("where", "holds"), ASKED)
def test_questions_prune_and_lose_nothing(
    asked: tuple[tidelake.Table, list[dict[str, Any]]], where: str, holds: Any
) -> None:
    table, rows = asked
    found = sorted(n for n in table.scan(["n"], where).read_all()["n"].to_pylist() if n >= 0)
    assert found == [row["n"] for row in rows if holds(row)]
    assert sorted(n for n in table.scan(["n"], where, prune=False).read_all()["n"].to_pylist() if n >= 0) == found
    if len(found) < 10 and "not" not in where and "is null" not in where:
        assert len(table.plan(["n"], where).tasks) < 8


def test_questions_of_another_type_are_refused(asked: tuple[tidelake.Table, Any]) -> None:
    for where in ("day == 5", "day has 'x'", "price == true", "price == 'x'", "raw == 'x'", "price contains '1'"):
        with pytest.raises(QueryError):
            asked[0].scan(["n"], where)
    assert "price == 12.5" in asked[0].plan(["n"], "price == 12.5").explain()


def test_python_values_are_compared(asked: tuple[tidelake.Table, Any]) -> None:
    table, _ = asked
    wanted = (tidelake.col("day") == date(2024, 1, 3)) & (tidelake.col("price") == Decimal("2.50"))
    assert table.scan(["n"], wanted).read_all()["n"].to_pylist() == [2]
    assert table.scan(["n"], repr(wanted)).read_all()["n"].to_pylist() == [2]


def test_decimals_widen_where_they_are_kept_alike(lake: tidelake.Lake) -> None:
    table = lake.create_table("s.t", {"n": "long", "d": "decimal(4,2)", "day": "date"})
    table.append([{"n": 1, "d": Decimal("12.34")}])
    table.add_column("d", "decimal(10,2)")
    table.append([{"n": 2, "d": Decimal("123456.78")}])
    assert table.to_arrow(["d"])["d"].to_pylist() == [Decimal("12.34"), Decimal("123456.78")]
    for name, kind in (
        ("d", "decimal(12,3)"),
        ("d", "decimal(30,2)"),
        ("d", "real"),
        ("day", "int"),
        ("n", "decimal(9,0)"),
    ):
        with pytest.raises(SchemaError):
            table.add_column(name, kind)


def test_roles_that_need_stored_meanings_refuse_logical_types(lake: tidelake.Lake) -> None:
    columns = {"ts": "timestamp", "local": "timestamp_ntz", "day": "date"}
    with pytest.raises(SchemaError):
        lake.create_table("s.a", columns, time="local")
    with pytest.raises(SchemaError):
        lake.create_table("s.a", columns, time="ts", bucket="1m", entity=["day"])
    with pytest.raises(SchemaError):
        lake.create_table("s.b", {"ts": "timestamp", "at": "dynamic"}).promote("at.day", "date")


def test_a_value_of_another_form_is_no_answer() -> None:
    kind = DataType.parse("array<long>")
    array, bad = fitted(pa.array([b"\x81\x01", b"\x81\xff", b"\x9f\x01\xff", b"\xa1\x61\x61\x01"], pa.binary()), kind)
    assert bad.tolist() == [False, True, True, True]
    assert array.null_count == 3
    with pytest.raises(tidelake.errors.CorruptError):
        shown(pa.array([b"\x81\xff"], pa.binary()), kind)


def test_texts_of_decimals_are_those_of_the_format_page() -> None:
    page = (Path(__file__).parents[2] / "docs" / "format.md").read_text()
    written = orjson.loads(page.split("```json decimal-text\n")[1].split("```")[0])
    assert written == [[number, decimal_text(int(number))] for number, _ in written]


def test_bounds_are_listed_as_they_are_meant(asked: tuple[tidelake.Table, Any]) -> None:
    from tidelake.cli.catalog_rows import list_columns

    listed = list_columns(tidelake.connect(asked[0].lake), "s.t")
    rows = [dict(zip(listed.keys, row, strict=True)) for row in listed.rows]
    bounds = {row["column"]: (row["least"], row["most"]) for row in rows}
    assert bounds["day"] == ("2024-01-01", "2024-02-09")
    assert bounds["price"] == ("0.00", "48.75")
    assert bounds["big"] == ("-20.00001", "18.99999")
    assert bounds["local"] == ("2024-01-01T12:00:00", "2024-02-09T12:00:00")
