"""Show of every type of Arrow, Polars and pandas that it comes back, as itself or as documented, or is refused."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from datetime import time as clock
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest

from tidelake import Lake, Table
from tidelake.errors import TidelakeError

ZONES = ("UTC", "America/New_York", "Asia/Kolkata")
NIGHT = datetime(2024, 3, 10, 2, 30)  # which New York skips
AWARE = datetime(2024, 3, 10, 2, 30, tzinfo=UTC)
SAME: Any = object()
REFUSED: Any = object()


def nested(*fields: tuple[str, pa.DataType]) -> pa.DataType:
    return pa.struct(list(fields))


# Values, their type, and the type and values that come back if they are others.
ARROW: dict[str, tuple[list[Any], pa.DataType, Any, Any]] = {
    "bool": ([True], pa.bool_(), SAME, SAME),
    "int8": ([-128], pa.int8(), pa.int32(), SAME),
    "int16": ([-(2**15)], pa.int16(), pa.int32(), SAME),
    "int32": ([-(2**31)], pa.int32(), SAME, SAME),
    "int64": ([-(2**63)], pa.int64(), SAME, SAME),
    "uint8": ([255], pa.uint8(), pa.int32(), SAME),
    "uint16": ([2**16 - 1], pa.uint16(), pa.int32(), SAME),
    "uint32": ([2**32 - 1], pa.uint32(), pa.int64(), SAME),
    "uint64": ([2**63 - 1], pa.uint64(), pa.int64(), SAME),
    "float16": ([np.float16(0.5)], pa.float16(), pa.float64(), [0.5]),
    "float32": ([0.5, float("-inf")], pa.float32(), pa.float64(), SAME),
    "float64": ([0.1, -0.0], pa.float64(), SAME, SAME),
    "string": (["", "é"], pa.string(), SAME, SAME),
    "large_string": (["é"], pa.large_string(), pa.string(), SAME),
    "string_view": (["é"], pa.string_view(), pa.string(), SAME),
    "dictionary": (["a"], pa.dictionary(pa.int8(), pa.string()), pa.string(), SAME),
    "dictionary of dates": ([date(2024, 3, 10)], pa.dictionary(pa.int32(), pa.date32()), pa.date32(), SAME),
    "run_end_encoded": (["a"], pa.run_end_encoded(pa.int32(), pa.string()), pa.string(), SAME),
    "binary": ([b"", b"\x00\xff"], pa.binary(), SAME, SAME),
    "large_binary": ([b"\xff"], pa.large_binary(), pa.binary(), SAME),
    "binary_view": ([b"\xff"], pa.binary_view(), pa.binary(), SAME),
    "fixed_size_binary": ([b"ab"], pa.binary(2), pa.binary(), SAME),
    "uuid": ([UUID(int=5).bytes], pa.uuid(), pa.binary(), [UUID(int=5).bytes]),
    "bool8": ([1, 0], pa.bool8(), pa.bool_(), [True, False]),
    "date32": ([date(2024, 3, 10), date(1, 1, 1)], pa.date32(), SAME, SAME),
    "date64": ([date(2024, 3, 10)], pa.date64(), pa.date32(), SAME),
    "timestamp[s]": ([NIGHT], pa.timestamp("s"), pa.timestamp("us"), SAME),
    "timestamp[ms]": ([NIGHT], pa.timestamp("ms"), pa.timestamp("us"), SAME),
    "timestamp[us]": ([NIGHT], pa.timestamp("us"), SAME, SAME),
    "timestamp[ns]": ([NIGHT], pa.timestamp("ns"), pa.timestamp("us"), SAME),
    "timestamp[us, UTC]": ([AWARE], pa.timestamp("us", "UTC"), SAME, SAME),
    "timestamp[s, Kolkata]": ([AWARE], pa.timestamp("s", "Asia/Kolkata"), pa.timestamp("us", "UTC"), SAME),
    "time32": ([clock(1, 2, 3)], pa.time32("s"), pa.string(), ["01:02:03"]),
    "time64": ([clock(1, 2, 3, 4)], pa.time64("us"), pa.string(), ["01:02:03.000004"]),
    "duration": ([timedelta(1)], pa.duration("us"), REFUSED, SAME),
    "interval": ([pa.MonthDayNano([1, 2, 3])], pa.month_day_nano_interval(), REFUSED, SAME),
    "decimal32": ([Decimal("1.50")], pa.decimal32(5, 2), pa.decimal128(5, 2), SAME),
    "decimal64": ([Decimal("1.50")], pa.decimal64(15, 2), pa.decimal128(15, 2), SAME),
    "decimal128(18,2)": ([Decimal("-1.50")], pa.decimal128(18, 2), SAME, SAME),
    "decimal128(38,10)": ([Decimal("-1.5000000000")], pa.decimal128(38, 10), SAME, SAME),
    "decimal256(20,2)": ([Decimal("1.50")], pa.decimal256(20, 2), pa.decimal128(20, 2), SAME),
    "decimal256(60,2)": ([Decimal("1.50")], pa.decimal256(60, 2), pa.string(), ["1.50"]),
    "decimal128(5,-2)": ([Decimal("1500")], pa.decimal128(5, -2), pa.decimal128(7, 0), SAME),
    "list": ([[1, None], []], pa.list_(pa.int64()), SAME, SAME),
    "large_list": ([[0.5]], pa.large_list(pa.float32()), pa.list_(pa.float32()), SAME),
    "list_view": ([[1, None]], pa.list_view(pa.int64()), pa.list_(pa.int64()), SAME),
    "fixed_size_list": ([[1, 2]], pa.list_(pa.int64(), 2), pa.list_(pa.int64()), SAME),
    "vector": ([[0.5, 1.5]], pa.list_(pa.field("item", pa.float32(), nullable=False), 2), SAME, SAME),
    "map": ([[("b", 1), ("a", None)]], pa.map_(pa.string(), pa.int8()), SAME, [[("a", None), ("b", 1)]]),
    "map of dates": ([[(date(2024, 3, 10), b"x")]], pa.map_(pa.date32(), pa.binary()), SAME, SAME),
    "struct": (
        [{"d": NIGHT.date(), "n": NIGHT, "t": AWARE, "x": Decimal("1.50"), "l": [{"b": b"x"}], "i": -128}],
        nested(("d", pa.date32()), ("n", pa.timestamp("us")), ("t", pa.timestamp("us", "UTC")),
               ("x", pa.decimal128(30, 2)), ("l", pa.list_(nested(("b", pa.binary())))), ("i", pa.int8())),
        SAME, SAME,
    ),
    "list of uint64": ([[2**64 - 1]], pa.list_(pa.uint64()), pa.list_(pa.decimal128(20, 0)), [[Decimal(2**64 - 1)]]),
    "list of categories": ([["a"]], pa.list_(pa.dictionary(pa.int8(), pa.string())), pa.list_(pa.string()), SAME),
    "list of durations": ([[timedelta(1)]], pa.list_(pa.duration("us")), REFUSED, SAME),
}  # fmt: skip


@pytest.fixture(params=ZONES)
def zone(request: pytest.FixtureRequest) -> Iterator[str]:
    """Let the process live in a zone."""
    before = os.environ.get("TZ")
    os.environ["TZ"] = request.param
    time.tzset()
    yield request.param
    if before is None:
        del os.environ["TZ"]
    else:
        os.environ["TZ"] = before
    time.tzset()


def array_of(values: list[Any], kind: pa.DataType) -> pa.Array:
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, pa.array([*values, None], kind.storage_type))
    if pa.types.is_dictionary(kind):
        return pa.array([*values, None], kind.value_type).dictionary_encode()
    if pa.types.is_run_end_encoded(kind):
        return pa.RunEndEncodedArray.from_arrays([1, 2, 3], pa.array([*values, None]), kind)
    return pa.array([*values, None], kind)


def written(lake: Lake, rows: Any, name: str) -> Table:
    table = lake.create_table(name, {"k": "long"})
    assert table.append(rows).overflowed == 0
    return table


def test_every_type_of_arrow(lake: Lake, zone: str) -> None:
    arrays, expected = {}, {}
    for name, (values, kind, back, others) in ARROW.items():
        array = array_of((values * 2)[:2], kind)
        if back is REFUSED:
            refuses(lake, pa.table({"v": array}), f"s.r{list(ARROW).index(name)}")
        else:
            returned = values if others is SAME else others
            arrays[name], expected[name] = array, (kind if back is SAME else back, [*(returned * 2)[:2], None])
    table = lake.create_table("s.t", {"k": "long"})
    for start in range(0, len(arrays), 32):  # columns that are new in one call
        part = dict(list(arrays.items())[start : start + 32])
        assert table.append(pa.table({"k": [start] * 3, **part})).overflowed == 0
        for _ in range(2):  # as hot rows, and out of an extent
            found = table.to_arrow(list(part), f"k == {start}")
            read = {name: (found[name].type, found[name].to_pylist()) for name in part}
            assert read == {name: expected[name] for name in part}
            table.flush()
        again = written(lake, found, f"s.u{start}")  # what was read goes in as it is
        assert again.to_arrow(list(part)) == found


def refuses(lake: Lake, rows: Any, name: str) -> None:
    table = lake.create_table(name, {"k": "long"})
    with pytest.raises(TidelakeError):
        table.append(rows)
    assert table.snapshot.sequence == 1


POLARS: dict[str, tuple[pl.Series, Any]] = {
    "Int8": (pl.Series([-128], dtype=pl.Int8), pl.Int32),
    "Int16": (pl.Series([1], dtype=pl.Int16), pl.Int32),
    "Int32": (pl.Series([1], dtype=pl.Int32), SAME),
    "Int64": (pl.Series([2**63 - 1]), SAME),
    "Int128": (pl.Series([1], dtype=pl.Int128), REFUSED),
    "UInt8": (pl.Series([255], dtype=pl.UInt8), pl.Int32),
    "UInt16": (pl.Series([2**16 - 1], dtype=pl.UInt16), pl.Int32),
    "UInt32": (pl.Series([2**32 - 1], dtype=pl.UInt32), pl.Int64),
    "UInt64": (pl.Series([2**63 - 1], dtype=pl.UInt64), pl.Int64),
    "Float32": (pl.Series([0.5], dtype=pl.Float32), pl.Float64),
    "Float64": (pl.Series([0.1]), SAME),
    "Boolean": (pl.Series([True]), SAME),
    "String": (pl.Series(["é"]), SAME),
    "Categorical": (pl.Series(["a"], dtype=pl.Categorical), pl.String),
    "Enum": (pl.Series(["a"], dtype=pl.Enum(["a"])), pl.String),
    "Binary": (pl.Series([b"\xff"]), SAME),
    "Date": (pl.Series([date(2024, 3, 10)]), SAME),
    "Time": (pl.Series([clock(1, 2, 3, 4)]), pl.String),
    "Duration": (pl.Series([timedelta(1)]), REFUSED),
    "Datetime(us)": (pl.Series([NIGHT]), SAME),
    "Datetime(ms)": (pl.Series([NIGHT], dtype=pl.Datetime("ms")), pl.Datetime("us")),
    "Datetime(ns)": (pl.Series([NIGHT], dtype=pl.Datetime("ns")), pl.Datetime("us")),
    "Datetime(us, UTC)": (pl.Series([AWARE], dtype=pl.Datetime("us", "UTC")), SAME),
    "Datetime(us, Kolkata)": (pl.Series([AWARE], dtype=pl.Datetime("us", "Asia/Kolkata")), pl.Datetime("us", "UTC")),
    "Decimal": (pl.Series([Decimal("1225.50")], dtype=pl.Decimal(10, 2)), SAME),
    "Decimal(38)": (pl.Series([Decimal("1.5")], dtype=pl.Decimal(38, 10)), SAME),
    "List": (pl.Series([[1, None]]), SAME),
    "Array": (pl.Series([[1, 2]], dtype=pl.Array(pl.Int64, 2)), pl.List(pl.Int64)),
    "Array of floats": (pl.Series([[0.5, 1.5]], dtype=pl.Array(pl.Float32, 2)), SAME),
    "Struct": (pl.Series([{"a": 1, "b": [date(2024, 3, 10)]}]), SAME),
    "Object": (pl.Series([object()], dtype=pl.Object), REFUSED),
}


def test_every_type_of_polars(lake: Lake, zone: str) -> None:
    for at, (name, (series, back)) in enumerate(POLARS.items()):
        if back is REFUSED:
            refuses(lake, pl.DataFrame({"v": series}), f"s.t{at}")
            continue
        whole = series.extend(pl.Series([None], dtype=series.dtype))
        found = written(lake, pl.DataFrame({"v": whole}), f"s.t{at}").to_polars(["v"])["v"]
        assert found.dtype == (whole.dtype if back is SAME else back), name
        if name != "Time":
            assert found.to_list() == whole.to_list(), name


TWO_ZONES = pd.Series(pd.to_datetime(["2024-03-10 02:30", None]))
PANDAS: dict[str, tuple[pd.Series, str | None]] = {
    "int64": (pd.Series([1, 2**63 - 1]), "int64"),
    "Int64": (pd.Series([2**53 + 1, None], dtype="Int64"), "Int64"),
    "Int8": (pd.Series([-128, None], dtype="Int8"), "Int32"),
    "UInt32": (pd.Series([2**32 - 1, None], dtype="UInt32"), "Int64"),
    "float64": (pd.Series([0.1, float("inf")]), "float64"),
    "Float32": (pd.Series([0.5, 1.5], dtype="Float32"), "float64"),
    "bool": (pd.Series([True, False]), "bool"),
    "boolean": (pd.Series([True, None], dtype="boolean"), "boolean"),
    "texts": (pd.Series(["a", None]), "object"),
    "string": (pd.Series(["a", None], dtype="string"), "object"),
    "category": (pd.Series(["a", None], dtype="category"), "object"),
    "datetime64[ns]": (TWO_ZONES, "datetime64[us]"),
    "datetime64[us]": (TWO_ZONES.astype("datetime64[us]"), "datetime64[us]"),
    "datetime64[ns, Kolkata]": (TWO_ZONES.dt.tz_localize("Asia/Kolkata"), "datetime64[us, UTC]"),
    "dates": (pd.Series([date(2024, 3, 10), None]), "object"),
    "decimals": (pd.Series([Decimal("1225.50"), None]), "object"),
    "bytes": (pd.Series([b"\xff", None]), "object"),
    "lists": (pd.Series([[1, 2**53 + 1], None]), "object"),
    "dicts": (pd.Series([{"a": 2**53 + 1, "b": date(2024, 3, 10)}, None]), "object"),
    "decimal128": (pd.Series([Decimal("1.50"), None], dtype=pd.ArrowDtype(pa.decimal128(10, 2))), "object"),
    "timedelta64": (pd.Series(pd.to_timedelta(["1D"])), None),
    "period": (pd.Series(pd.period_range("2024-01", "2024-02", freq="M")), None),
    "interval": (pd.Series(pd.interval_range(0, 2)), None),
    "complex128": (pd.Series([1j]), None),
    "mixed": (pd.Series([1, "a"]), None),
}


def test_every_type_of_pandas(lake: Lake, zone: str) -> None:
    for at, (name, (series, back)) in enumerate(PANDAS.items()):
        frame = pd.DataFrame({"v": series})
        if back is None:
            refuses(lake, frame, f"s.t{at}")
            continue
        found = written(lake, frame, f"s.t{at}").to_pandas(["v"])["v"]
        assert str(found.dtype) == back, name
        missing = series.isna().tolist()
        assert found.isna().tolist() == missing, name
        pairs = zip(found.tolist(), series.tolist(), missing, strict=True)
        assert [one for one, _, gone in pairs if not gone] == [
            value for value in series.tolist() if not _is_na(value)
        ], name


def _is_na(value: Any) -> bool:
    return not isinstance(value, list | dict) and bool(pd.isna(value))


def test_what_is_finer_than_microseconds_is_announced(lake: Lake) -> None:
    table = lake.create_table("s.t", {"ts": "timestamp"})
    fine = pa.array([1_704_067_200_123_456_789, 1_704_067_200_000_001_000, None], pa.timestamp("ns"))
    report = table.append(pa.table({"ts": fine.fill_null(0), "local": fine}))
    said = "1 time of {} had nanoseconds: microseconds are kept, rounded down"
    assert report.changes == (said.format("local"), said.format("ts"))
    assert table.to_arrow(["local"])["local"].to_pylist() == [
        datetime(2024, 1, 1, 0, 0, 0, 123456), datetime(2024, 1, 1, 0, 0, 0, 1), None,
    ]  # fmt: skip


def test_duckdb_reads_what_was_written_and_back(lake: Lake, zone: str) -> None:
    duckdb = pytest.importorskip("duckdb")
    connection = duckdb.connect()
    rows = connection.sql(
        "select date '2024-03-10' as day, timestamp '2024-03-10 02:30:00' as local, 1225.50::decimal(10,2) as d,"
        " 'ab'::blob as raw, {'a': 1, 'b': ['x', null]} as st, map {'k': 1.5::double} as m, [1::tinyint] as l"
    )
    table = written(lake, rows.to_arrow_table(), "s.t")
    columns = list(table.schema.names)[1:]
    found = table.to_duckdb(connection, columns)
    assert (found.types, found.fetchall()) == (rows.types, rows.fetchall())


def test_old_instants_of_parquet_are_instants(lake: Lake, tmp_path: Path) -> None:
    kinds = pa.schema([("at", pa.timestamp("us")), ("l", pa.list_(pa.timestamp("us")))])
    rows = pa.Table.from_pylist([{"at": NIGHT, "l": [NIGHT]}, {}], kinds)
    for name, old in (("old", True), ("new", False)):
        pa.parquet.write_table(rows, tmp_path / f"{name}.parquet", use_deprecated_int96_timestamps=old)
        found = written(lake, tmp_path / f"{name}.parquet", f"s.{name}").to_arrow(["at", "l"])
        kind = pa.timestamp("us", tz="UTC" if old else None)
        assert found.schema.types == [kind, pa.list_(kind)]
        time = NIGHT.replace(tzinfo=UTC) if old else NIGHT
        assert found.to_pylist() == [{"at": time, "l": [time]}, {"at": None, "l": None}]
