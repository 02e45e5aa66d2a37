"""Show that names which only case tells apart make one column, or two that every engine can read."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import tidelake
from tests.support.catalogs import fresh_schema
from tidelake.ingest import infer_schema
from tidelake.ingest.json import plain_reader
from tidelake.model.schema import told_apart

Rows = list[dict[str, Any]]
ALONE: Rows = [{"n": 1, "Level": "a"}, {"n": 2, "level": "b"}, {"n": 3, "LEVEL": "c"}]
TOGETHER: Rows = [{"n": 4, "Level": "x", "level": "y"}, {"n": 5, "level": "z"}]


def lines_of(rows: Rows) -> bytes:
    return "\n".join(map(json.dumps, rows)).encode()


def arrow_of(rows: Rows) -> pa.Table:
    names = [name for name in dict.fromkeys(name for row in rows for name in row) if name != "n"]
    return pa.Table.from_pylist(rows, pa.schema([("n", pa.int64()), *((name, pa.large_string()) for name in names)]))


@pytest.fixture(params=["dicts", "few lines", "lines", "arrow"])
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[Rows], Any]:
    if request.param == "lines":
        monkeypatch.setattr(plain_reader, "_read", plain_reader.PROCESS_BYTES)
    forms: dict[str, Callable[[Rows], Any]] = {
        "dicts": list,
        "few lines": lines_of,
        "lines": lines_of,
        "arrow": arrow_of,
    }
    return forms[request.param]


@pytest.fixture
def table(tmp_path: Path) -> tidelake.Table:
    return tidelake.connect(tmp_path / "lake").create_table("s.t", {"n": "long", "level": "string"})


def test_a_field_in_another_case_goes_into_the_column(table: tidelake.Table, form: Callable[[Rows], Any]) -> None:
    table.append(form(ALONE))
    assert table.to_arrow().to_pylist() == [
        {"n": row["n"], "level": level} for row, level in zip(ALONE, "abc", strict=True)
    ]


def test_both_are_kept_where_a_row_has_both(table: tidelake.Table, form: Callable[[Rows], Any]) -> None:
    table.append(form(TOGETHER))
    assert table.schema.names == ("n", "level", "Level")
    assert table.to_arrow().to_pylist() == [
        {"n": 4, "level": "y", "Level": "x"},
        {"n": 5, "level": "z", "Level": None},
    ]
    table.append(form([{"n": 6, "Level": "w"}, {"n": 7, "LEVEL": "v"}]))  # a column's own name comes first
    assert table.to_arrow().to_pylist()[2:] == [
        {"n": 6, "level": None, "Level": "w"},
        {"n": 7, "level": "v", "Level": None},
    ]


def test_new_columns_are_named_as_they_first_come(form: Callable[[Rows], Any]) -> None:
    schema, _ = infer_schema(form(ALONE))
    assert sorted(schema.names) == ["Level", "n"]
    assert sorted(infer_schema(form(TOGETHER))[0].names) == ["Level", "level", "n"]


def test_what_does_not_fit_overflows_under_the_columns_name(table: tidelake.Table, form: Callable[[Rows], Any]) -> None:
    table.add_column("code", "int")
    table.append(form([{"n": 1, "Code": "x"}]))
    assert table.scan(["n"], "_overflow['code'] == 'x'").read_all().num_rows == 1


def test_text_files_are_folded_too(table: tidelake.Table, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("n,LEVEL\n1,a\n2,\n")
    table.append(path)
    assert table.schema.names == ("n", "level")
    assert table.to_arrow()["level"].to_pylist()[0] == "a"


def test_columns_of_unlike_types_stay_apart(table: tidelake.Table) -> None:
    rows = pa.table({"n": [1, 2], "LEVEL": pa.array([None, [1]], pa.list_(pa.int64())), "level": ["a", None]})
    table.append(rows)
    assert table.schema.names == ("n", "level", "LEVEL")


def test_duckdb_sees_the_second_under_another_name(table: tidelake.Table) -> None:
    table.append(TOGETHER)
    found = table.to_duckdb(duckdb.connect()).project("level, Level_2").fetchall()
    assert found == [("y", "x"), ("z", None)]


def test_names_of_the_second_are_no_others() -> None:
    names = ["a", "A", "a_2", "A_2", "b"]
    assert told_apart(names) == {"a": "a", "A": "A_3", "a_2": "a_2", "A_2": "A_2_2", "b": "b"}


@pytest.mark.parametrize("kind", ["sqlite", "postgres", "log"])
def test_columns_that_two_writers_add_in_two_cases_are_one(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if kind == "postgres":
        places: dict[str, Any] = {"objects": str(tmp_path / "objects")}
        where = fresh_schema(request.getfixturevalue("postgres"))
    else:
        places, where = {}, f"{'log:' if kind == 'log' else ''}{tmp_path}/lake"
    with tidelake.connect(where, **places) as one, tidelake.connect(where, **places) as two:
        name = "lake" if kind == "log" else "s.t"
        columns = {"ts": "timestamp", "n": "long"}
        winner = one.create_table(name, columns, time="ts")
        loser = two.table(name)
        loser.append([{"ts": "2026-01-01T00:00:00Z", "n": 0}])  # so that it builds on what it has seen
        winner.append([{"ts": "2026-01-01T00:01:00Z", "n": 1, "Level": 1, "Code": 7}])
        loser.append([{"ts": "2026-01-01T00:02:00Z", "n": 2, "level": 2, "code": "x"}])
        found = one.table(name)
        assert found.schema.names == ("ts", "n", "Level", "Code", "_overflow")
        assert sorted(found.to_arrow(["n", "Level"]).to_pylist(), key=lambda row: row["n"]) == [
            {"n": 0, "Level": None},
            {"n": 1, "Level": 1},
            {"n": 2, "Level": 2},
        ]
        assert found.scan(["n"], "_overflow['Code'] == 'x'").read_all().to_pylist() == [{"n": 2}]


def test_a_column_may_still_be_added_in_another_case_on_purpose(table: tidelake.Table) -> None:
    table.add_column("LEVEL", "long")
    assert table.schema.names == ("n", "level", "LEVEL")
