"""See what DuckDB is given of a scan: few columns, how many rows there are, decimals as they are stored."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from pathlib import Path
from random import Random

import duckdb
import pyarrow as pa
import pytest

import tidelake
from tidelake import Lake
from tidelake.query.engines.streams import Stream
from tidelake.query.session import run

WIDTHS = ((1, 0), (4, 2), (9, 9), (10, 3), (18, 4), (19, 4), (38, 10))


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with tidelake.connect(tmp_path / "lake") as lake:
        yield lake


def test_engine_is_told_how_many_rows_are_read(lake: Lake) -> None:
    table = lake.create_table("t", {"day": "int", "n": "int"})
    for day in range(3):
        table.append([{"day": day, "n": n} for n in range(100)])
        table.flush()
    table.append([{"day": 2, "n": 7}])  # stays hot
    found = lake.sql("select n from t where day = 2", engine="local")
    scan = found._scans[0]
    stream = Stream(scan, lake.handle.footers, lambda: None, "sql")
    with duckdb.connect() as connection:
        connection.register("held", stream)
        plan = connection.sql("explain select n from held").fetchall()[0][1]
    assert len(stream) == 101
    assert "~101 rows" in plan


def test_what_only_has_to_exist_is_not_read(lake: Lake) -> None:
    a = lake.create_table("a", {"id": "long", "name": "string", "wide": "string"})
    b = lake.create_table("b", {"id": "long", "name": "string", "wide": "string"})
    a.append([{"id": n, "name": f"a{n}", "wide": "w" * n} for n in range(10)])
    b.append([{"id": n, "name": f"b{n % 3}", "wide": "w" * n} for n in range(0, 10, 2)])
    texts = {
        "select name from a where exists (select * from b where b.id = a.id)": ("id",),
        "select name from a where not exists (select * from b where b.id = a.id and b.name = 'b1')": ("id", "name"),
        "select name from a where exists (select * from b join a as c on b.id = c.id where c.id = a.id)": ("id",),
        "select name from a where exists (select wide, count(*) from b where b.id = a.id group by wide)": (
            "id",
            "wide",
        ),
        "select name from a where exists (select distinct * from b where b.id = a.id)": ("id", "name", "wide"),
        "select name from a where exists (select max(id) from b where b.id > 100)": ("id",),
        "select name from a where exists (select * from b where b.id = a.id limit 0)": ("id",),
        "select name from a where exists (select id from b union all select id from b where id > 5)": ("id",),
    }
    for text, columns in texts.items():
        found = lake.sql(text + " order by name", engine="local")
        read = next(scan for scan in found._scans if scan.table.name.endswith("b"))
        with duckdb.connect() as connection:
            connection.execute(
                "create table a as select i as id, 'a' || i as name, repeat('w', i) as wide from range(10) t(i)"
            )
            connection.execute(
                "create table b as select i as id, 'b' || (i % 3) as name, repeat('w', i) as wide "
                "from range(0, 10, 2) t(i)"
            )
            expected = [row[0] for row in connection.sql(text + " order by name").fetchall()]
        assert found.to_arrow()["name"].to_pylist() == expected, text
        assert read.columns == columns, text


def test_decimals_of_every_width_reach_the_engine_as_they_are(lake: Lake) -> None:
    names = {f"d{precision}_{scale}": (precision, scale) for precision, scale in WIDTHS}
    table = lake.create_table("t", {name: f"decimal({p},{s})" for name, (p, s) in names.items()})
    most = {name: Decimal(f"{'9' * precision}E-{scale}") for name, (precision, scale) in names.items()}
    one = {name: Decimal(1).scaleb(-scale) for name, (_, scale) in names.items()}
    rows: list[dict[str, Decimal | None]] = [
        {**most},
        {name: value.copy_negate() for name, value in most.items()},
        {**one},
        {name: -value for name, value in one.items()},
        {name: Decimal(0).scaleb(-scale) for name, (_, scale) in names.items()},
        {**dict.fromkeys(names)},
    ]
    table.append(rows)
    for name, (precision, scale) in names.items():
        found = lake.sql(f"select {name} as d, {name} is null as n from t", engine="local")
        assert [row["d"] for row in found.to_arrow().to_pylist()] == [row[name] for row in rows], name
        assert str(found.to_arrow().schema.field("d").type) == f"decimal128({precision}, {scale})"


def test_scan_has_nothing_of_a_table_but_its_schema_length_and_stream(lake: Lake) -> None:
    table = lake.create_table("t", {"a": "int", "b": "string"})
    table.append([{"a": n, "b": str(n)} for n in range(5)])
    scan = lake.sql("select a, b from t where a > 1", engine="local")._scans[0]
    stream = Stream(scan, lake.handle.footers, lambda: None, "sql")
    for name in ("num_rows", "columns", "to_pylist", "column", "nbytes", "shape", "to_batches", "__getitem__"):
        with pytest.raises(AttributeError, match="no table"):
            getattr(stream, name)
    assert (stream == stream, {stream}, stream.schema.names) == (True, {stream}, ["a", "b"])
    assert repr(stream) == "Stream('tide_0', 5 rows)"
    narrowed = pa.RecordBatchReader.from_stream(stream.select([1])).read_all()
    assert narrowed.to_pydict() == {"b": ["2", "3", "4"]}


def test_engine_reads_some_columns_of_a_scan(lake: Lake) -> None:
    table = lake.create_table("t", {"a": "int", "b": "string", "c": "real"})
    table.append([{"a": n, "b": str(n), "c": n / 2} for n in range(5)])
    scan = lake.sql("select a, b, c from t", engine="local")._scans[0]
    with duckdb.connect() as connection:
        connection.register("held", Stream(scan, lake.handle.footers, lambda: None, "sql"))
        for text in ("select c, a from held", "select b from held", "select count(*) from held", "select * from held"):
            assert len(connection.sql(text).to_arrow_table()) in (1, 5)
        assert connection.sql("select c, a from held where b = '3'").fetchall() == [(1.5, 3)]


PICKED = {
    "select n, s as t from t where n >= 90": True,
    "select s, d, x from t where s = 'b' and n between 3 and 80": True,
    "select d, n, n as m from t": True,
    "select n from t where n > 5 limit 3": False,
    "select n + 1 as n from t": False,
    "select distinct s from t": False,
    "select n from t where n % 2 = 0": False,
    "select a from t": False,
    "select n from t order by n desc": False,
    "select n from t where a:k > 50": None,
    "select n from (select n, s from t) as u": False,
    "select t.n from t join t as u on t.n = u.n": False,
}


def test_rows_that_are_only_picked_are_those_that_the_engine_gives(lake: Lake) -> None:
    table = lake.create_table(
        "t", {"n": "int", "s": "string", "x": "decimal(10,2)", "d": "date", "a": "dynamic", "ts": "timestamp"}
    )
    rows = [
        {"n": n, "s": "abc"[n % 3], "x": Decimal(n) / 4, "d": date(2026, 1, 1 + n % 28), "a": {"k": n}, "ts": n * 10**6}
        for n in range(100)
    ]
    table.append([*rows, {"n": None, "s": None, "x": None, "d": None, "a": None, "ts": 0}])
    for text, is_picked in PICKED.items():
        found, unpruned = lake.sql(text, engine="local"), run(lake, text, engine="local", prune=False)
        assert is_picked is None or (found._prepared.picked is not None) == is_picked, text
        assert unpruned._prepared.picked is None
        ours, engines = found.to_arrow(), unpruned.to_arrow()
        assert ours.schema == engines.schema, text
        if "limit" not in text:
            assert sorted(map(str, ours.to_pylist())) == sorted(map(str, engines.to_pylist())), text


@pytest.mark.parametrize("seed", range(3))
def test_pruned_answers_are_the_unpruned_ones_however_often_they_are_asked(seed: int, lake: Lake) -> None:
    chance = Random(seed)
    facts = lake.create_table("facts", {"k": "int", "n": "int", "s": "string", "x": "decimal(8,2)"})
    names = lake.create_table("names", {"k": "int", "name": "string"})
    for _ in range(3):
        facts.append(
            [
                {"k": chance.choice([None, *range(30)]), "n": n, "s": chance.choice("abcd"), "x": Decimal(n) / 8}
                for n in range(chance.randrange(50, 400))
            ]
        )
        facts.flush()
    names.append([{"k": k, "name": f"name {k % 7}"} for k in range(0, 40, 3)])
    conditions = [
        "n >= 5",
        "n < 390",
        "s <> 'a'",
        "s in ('b', 'c', 'd')",
        "x > 1.5",
        "facts.k is not null",
        "n between 40 and 60",
    ]
    shapes = [
        "select n, s, x from facts where {}",
        "select s, count(*) as c, sum(x) as t, avg(x) as m from facts where {} group by s",
        "select name, count(*) as c from facts join names on facts.k = names.k where {} group by name",
        "select n, s from facts where {} and exists (select * from names where names.k = facts.k)",
        "select n from facts where {} and not exists (select * from names where names.k = facts.k)",
        "select n from facts where {} and x < (select avg(x) + 20 from facts as f where f.k = facts.k)",
    ]
    for shape in shapes:
        text = shape.format(" and ".join(chance.sample(conditions, chance.randrange(1, 4))))
        expected = sorted(map(str, run(lake, text, engine="local", prune=False).to_arrow().to_pylist()))
        for _ in range(3):
            assert sorted(map(str, lake.sql(text, engine="local").to_arrow().to_pylist())) == expected, text
