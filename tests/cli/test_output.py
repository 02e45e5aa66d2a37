"""Write rows in every format, and read them back."""

from __future__ import annotations

import io
import math
import struct
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.console import Console

from tidelake import dynamic
from tidelake.cli.output import SHOWN_ROWS, suffix_format, table_of, write_result
from tidelake.errors import InvalidInputError, StorageError
from tidelake.model.schema import DYNAMIC_FIELD
from tidelake.query.json_rows import json_value
from tidelake.query.language import language_of

WHEN = datetime(2026, 3, 14, 12, 30, tzinfo=UTC)
PLAIN = [
    {"n": 1, "s": 'a,"b"', "ts": "2026-03-14T12:30:00Z", "d": {"x": [1, None]}},
    {"n": None, "s": None, "ts": None, "d": None},
]


def rows() -> pa.Table:
    columns = {
        "n": pa.array([1, None], pa.int64()),
        "s": pa.array(['a,"b"', None]),
        "ts": pa.array([WHEN, None], pa.timestamp("us", "UTC")),
        "d": pa.array([dynamic.encode({"x": [1, None]}), None], pa.binary()),
    }
    fields = [pa.field(name, array.type) for name, array in columns.items()]
    fields[3] = fields[3].with_metadata(DYNAMIC_FIELD)
    return pa.table(list(columns.values()), schema=pa.schema(fields))


def written(form: str, folder: Path) -> Path:
    path = folder / "out"
    write_result(rows(), form, str(path), Console(file=io.StringIO()))
    return path


def test_json_and_ndjson_hold_dynamic_values_as_they_are(tmp_path: Path) -> None:
    assert orjson.loads(written("json", tmp_path).read_bytes()) == PLAIN
    assert [orjson.loads(line) for line in written("ndjson", tmp_path).read_bytes().splitlines()] == PLAIN


def test_json_of_no_rows_is_an_empty_list(tmp_path: Path) -> None:
    write_result(rows().slice(0, 0), "json", str(tmp_path / "out"), Console(file=io.StringIO()))
    assert orjson.loads((tmp_path / "out").read_bytes()) == []


def test_csv_reads_back(tmp_path: Path) -> None:
    read = pa.csv.read_csv(written("csv", tmp_path), convert_options=pa.csv.ConvertOptions(strings_can_be_null=True))
    first = read.to_pylist()[0]
    assert (first["n"], first["s"], first["d"]) == (1, 'a,"b"', '{"x":[1,null]}')
    assert first["ts"] == WHEN


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_columnar_formats_keep_every_byte(form: str, tmp_path: Path) -> None:
    path = written(form, tmp_path)
    read = pa.parquet.read_table(path) if form == "parquet" else pa.ipc.open_stream(path.read_bytes()).read_all()
    assert read.equals(rows())


def test_table_shows_the_first_rows_and_counts_all() -> None:
    sink = io.StringIO()
    many = pa.table({"n": list(range(SHOWN_ROWS + 7))})
    Console(file=sink, width=80).print(table_of(many.to_reader()))
    assert f"{SHOWN_ROWS + 7} rows, the first {SHOWN_ROWS} shown" in sink.getvalue()
    assert f" {SHOWN_ROWS - 1} " in sink.getvalue()
    assert f" {SHOWN_ROWS + 1} " not in sink.getvalue().partition("rows, the first")[0].rpartition("\n")[0]


@pytest.mark.parametrize("width", [40, 400])
def test_rows_too_wide_for_a_table_are_shown_a_value_a_line(width: int) -> None:
    sink = io.StringIO()
    wide = {f"column_{n}": [f"value {n}" if n % 2 else None] * 12 for n in range(20)}
    Console(file=sink, width=width).print(table_of(pa.table(wide).to_reader()))
    lines = [line.split() for line in sink.getvalue().splitlines()]
    if width == 40:
        assert lines[:3] == [["row", "1"], ["column_1", "value", "1"], ["column_3", "value", "3"]]
        assert " ".join(sink.getvalue().split()).endswith("12 rows, the first 10 shown, nulls left out")
    else:
        assert (lines[1], lines[-1]) == (list(wide), ["12", "rows"])


def test_table_shows_columns_of_one_name_and_no_rows() -> None:
    sink = io.StringIO()
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["n", "n"])
    Console(file=sink, width=80).print(table_of(twice.to_reader()))
    assert sink.getvalue().split()[:2] + sink.getvalue().split()[-4:] == ["n", "n", "1", "2", "1", "row"]
    Console(file=sink, width=8).print(table_of(twice.slice(1).to_reader()))
    assert "0 rows" in sink.getvalue()


def test_table_does_not_let_values_move_the_cursor() -> None:
    sink = io.StringIO()
    Console(file=sink, width=80).print(table_of(pa.table({"s": ["a\x1b[2Jb\nc"]}).to_reader()))
    assert "\x1b" not in sink.getvalue()


def test_a_table_does_not_go_to_a_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="a file needs a format"):
        write_result(rows(), "table", str(tmp_path / "out"), Console(file=io.StringIO()))


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot be written"):
        write_result(rows(), "csv", str(tmp_path / "no" / "out.csv"), Console(file=io.StringIO()))


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("select 1", "sql"),
        ("  WITH a AS (select 1) select * from a", "sql"),
        ("-- why\nselect 1", "sql"),
        ("/* why */ (select 1)", "sql"),
        ("obs.logs | take 5", "kql"),
        ("let a = 5; print a", "kql"),
        ("print 1", "kql"),
        ("logs", "kql"),
        ("selected | count", "kql"),
        ("from | take 1", "kql"),
    ],
)
def test_language_is_told_by_the_first_word(text: str, language: str) -> None:
    assert language_of(text) == language


def test_suffix_names_the_format() -> None:
    assert [suffix_format(name) for name in ("a.CSV", "b.jsonl", "c.parquet", "d.txt", None)] == [
        "csv", "ndjson", "parquet", None, None,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (float("nan"), None),
        (WHEN, "2026-03-14T12:30:00Z"),
        (timedelta(seconds=90), "0:01:30"),
        (Decimal("1.50"), "1.50"),
        (b"\x00\xff", "AP8="),
        ({"a": [WHEN.date()]}, {"a": ["2026-03-14"]}),
    ],
)
def test_json_value_is_json(value: Any, expected: Any) -> None:
    assert json_value(value) == expected
    orjson.dumps(json_value(value))


REALS = [1234567.89, 0.1, 1e22, 1 / 3, 3.0, -0.0, 5e-324, 1.7976931348623157e308, 123456789012345.6, 1e15, 1e-7, 100.0]


@given(st.lists(st.floats(width=64), min_size=1, max_size=40))
@example([*REALS, float("nan"), float("inf"), float("-inf")])
def test_reals_on_screen_read_back_as_the_same_numbers(reals: list[float]) -> None:
    shown = table_of(pa.table({"r": reals}).to_reader())
    for (text,), real in zip(shown.cells, reals, strict=True):
        assert (math.isnan(real) and text == "nan") or struct.pack("d", float(text)) == struct.pack("d", real)
    assert [row[0] for row in shown.cells] == [repr(real) for real in reals]


def test_reals_in_every_text_form_read_back_as_the_same_numbers(tmp_path: Path) -> None:
    console = Console()
    for form in ("csv", "json", "ndjson"):
        place = tmp_path / f"out.{form}"
        write_result(pa.table({"r": REALS}), form, str(place), console)
        text = place.read_text()
        if form == "csv":
            found = [float(line) for line in text.splitlines()[1:]]
        else:
            lines = [orjson.loads(line) for line in text.splitlines()] if form == "ndjson" else orjson.loads(text)
            found = [row["r"] for row in lines]
        assert found == REALS, form


def test_a_table_of_reals_is_drawn_whole() -> None:
    screen = io.StringIO()
    rows = pa.table({"name": ["a", "b", "c"], "sum": [1234567.89, 0.1, 1e22]})
    Console(width=60, file=screen).print(table_of(rows.to_reader()))
    lines = [line.split() for line in screen.getvalue().splitlines() if line.strip()]
    assert lines[2:5] == [["a", "1234567.89"], ["b", "0.1"], ["c", "1e+22"]]
