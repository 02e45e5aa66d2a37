"""Hold a table to its word on values that change their type: each is found by an equality, or announced."""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import tidelake
from tidelake import dynamic
from tidelake.cli.main import main
from tidelake.errors import QueryError, SchemaError
from tidelake.lake import Lake
from tidelake.model.predicate import Equals
from tidelake.table import Table
from tidelake.write import appender, drift

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def rows_of(values: list[Any], first: int = 0) -> list[dict[str, Any]]:
    return [{"ts": NOON + timedelta(seconds=first + n), "v": value} for n, value in enumerate(values)]


def count(table: Table, where: str) -> int:
    """Count matching rows, with pruning and without."""
    found: list[int] = [table.scan(["ts"], where, prune=prune).read_all().num_rows for prune in (True, False)]
    assert found[0] == found[1], where
    return found[0]


@pytest.mark.parametrize("form", ["tlm2", "tlm3", "parquet"])
@pytest.mark.parametrize("kind", ["long", "real", "string", "bool", "timestamp"])
def test_a_column_of_several_types_becomes_dynamic_and_every_value_is_found(lake: Lake, form: str, kind: str) -> None:
    fitting: Any = {"long": 7, "real": 0.5, "string": "seven", "bool": True, "timestamp": NOON}[kind]
    table = lake.create_table("m", {"ts": "timestamp", "v": kind}, time="ts", format=form, flush_age="off")
    table.append(rows_of([fitting] * 500))
    table.flush()
    table.append(rows_of([fitting] * 5, 500))
    before = table.snapshot.sequence
    others: list[Any] = [{"a": 1}, [1, 2]] + ([] if kind == "string" else ["text"])
    report = table.append(rows_of(others * 10, 505))
    assert str(table.schema["v"].type) == "dynamic"
    assert any("v" in each and "dynamic" in each for each in report.changes), report
    table.append(rows_of([12, "twelve", fitting], 600))
    for _ in range(2):
        assert table.scan(["v"]).read_all()["v"].null_count == 0
        held = Counter(json.dumps(v) for v in tidelake.decode(table.to_arrow(["v"])["v"]))
        assert held[json.dumps(dynamic.to_json(fitting))] == 506
        assert held['{"a": 1}'] == held["[1, 2]"] == 10
        assert len(table.to_arrow(["ts"], Equals("v", fitting))) == 506
        assert (count(table, "v == 12"), count(table, "v['a'] == 1"), count(table, "v has 'twelve'")) == (1, 10, 1)
        assert count(table, "v == 'text'") == (0 if kind == "string" else 10)
        assert count(table, "v is null") == 0
        assert lake.sql("select count(*) n from m where v = 12").to_arrow()["n"].to_pylist() == [1]
        assert lake.kql("m | where v == 12 | count").to_arrow()["Count"].to_pylist() == [1]
        assert lake.sql("select v from m").warnings == ()
        table.flush()
    old = lake.table("m", snapshot=before)
    assert (str(old.schema["v"].type), old.to_arrow(["v"])["v"].to_pylist()) == (kind, [fitting] * 505)


def test_one_bad_value_among_many_changes_no_type_and_is_announced(lake: Lake) -> None:
    table = lake.create_table("m", {"ts": "timestamp", "v": "long", "w": "long"}, time="ts", flush_age="off")
    table.append(rows_of(list(range(5_000))))
    table.append(rows_of(["bad", 7], 5_000))
    table.append(rows_of([{"worse": 1}], 90_000))
    for hot in (True, False):
        assert str(table.schema["v"].type) == "long"
        [said] = lake.sql("select avg(v) from m").warnings
        assert said.startswith(
            "2 values of v do not fit its type, long, and are null in this answer: see default.m | where"
        )
        assert len(lake.kql(said.partition("see ")[2]).to_arrow()) == 2
        assert lake.kql("m | where v == 7").warnings == (said,)
        assert lake.sql("select count(*) from m").warnings == lake.sql("select w, ts from m").warnings == ()
        assert said in lake.sql("select v from m").explain()
        assert said in table.plan(["v"]).explain()
        until = "2026-01-01T14:00:00Z"
        [one] = lake.kql(f"m | where ts < datetime({until}) and v > 3").warnings
        assert one.startswith("1 value of v does not fit its type, long, and is null in this answer")
        assert table.plan(["v"], start="2026-01-03", end="2026-01-04").warnings == ()
        stats = table.extents()[-1].column_stats.get("_overflow", {})
        assert hot or stats["misfits"] == {"v": {"count": 2, "string": 1}}
        table.flush()


def test_a_value_that_fits_since_its_column_was_widened_is_found_and_not_announced(lake: Lake) -> None:
    table = lake.create_table("m", {"ts": "timestamp", "v": "int"}, time="ts", flush_age="off")
    table.append(rows_of([1, 2**70, "x"]))
    table.flush()
    assert len(lake.sql("select v from m").warnings) == 1
    table.append(rows_of([0.5], 10))
    assert count(table, f"v == {2**70}") == 1
    [said] = lake.sql("select v from m").warnings
    assert said.startswith("1 value of v does not fit its type, real")


def test_a_promoted_path_announces_what_its_type_does_not_hold(lake: Lake) -> None:
    table = lake.create_table("m", {"ts": "timestamp", "at": "dynamic"}, time="ts", flush_age="off")
    table.append([{"ts": NOON, "at": {"code": value}} for value in (1, 2, "three", None, {"x": 1})])
    table.flush()
    table.promote("at.code", "long", name="code")
    table.append([{"ts": NOON, "at": {"code": value}} for value in (5, "six")])
    [said] = lake.sql("select code from m").warnings
    assert said.startswith("3 values of code do not fit its type, long")
    assert count(table, "code > 0") == 3


def test_columns_that_a_table_relies_on_keep_their_type(lake: Lake) -> None:
    columns = {"ts": "timestamp", "device": "string", "v": "real"}
    table = lake.create_table("m", columns, time="ts", bucket="1m", entity=["device"], coverage="track")
    rows = [{"ts": NOON + timedelta(minutes=n), "device": "a", "v": 0.5} for n in range(50)]
    table.append(rows)
    for name in ("ts", "device"):
        with pytest.raises(SchemaError, match="only widens"):
            table.add_column(name, "dynamic")
    assert str(table.add_column("v", "dynamic")["v"].type) == "dynamic"
    assert count(table, "v == 0.5") == 50


VALUES: dict[str, list[Any]] = {
    "number": [0, 1, -5, 2**40, 2**53, 2**53 + 1, -(2**62), 2**70, 0.5, 3.0, -2.5, 1e300],
    "text": ["", "a", "12", "true", "word two", "0.5"],
    "other": [True, False, {"a": 1}, {"a": {"b": "c"}}, [1, "x"], []],
}


def live(lake: Lake, chance: random.Random, name: str, patch: pytest.MonkeyPatch) -> tuple[Table, list[Any]]:
    """Append values of every sort to one column, in phases of taste, hot and flushed, and promote it or not."""
    kind = chance.choice(["int", "long", "real", "bool", "string", "none", "promoted"])
    columns = {"ts": "timestamp", "at": "dynamic"} | ({} if kind in ("none", "promoted") else {"v": kind})
    table = lake.create_table(
        name, columns, time="ts", flush_age="off", format=chance.choice(["tlm2", "tlm3", "parquet"])
    )
    went_in: list[Any] = []
    is_promoted = False
    for _ in range(chance.randint(2, 8)):
        pool = chance.sample([value for several in VALUES.values() for value in several], chance.randint(1, 5))
        common = chance.choice(pool)
        size, rare = chance.choice([1, 5, 40]), chance.choice([0.0, 0.02, 0.5])
        values = [chance.choice(pool) if chance.random() < rare else common for _ in range(size)]
        if kind == "promoted":
            rows = [{"ts": row["ts"], "at": {"v": row["v"]}} for row in rows_of(values, len(went_in))]
        else:
            rows = rows_of(values, len(went_in))
        patch.setattr(appender, "HOT_ROWS", chance.choice([0, 1_000]))
        table.append(rows)
        went_in += values
        if chance.random() < 0.3:
            table.flush()
        if kind == "promoted" and not is_promoted and chance.random() < 0.5:
            table.promote("at.v", chance.choice(["long", "real", "string"]), name="v")
            is_promoted = True
    if kind == "promoted" and not is_promoted:
        table.promote("at.v", "string", name="v")
    return table, went_in


def is_found(value: Any, read: Any, kind: str) -> bool:
    """Whether what is read is the value, as the column's type has it."""
    if kind == "string" and not isinstance(value, str):
        return bool(read == json.dumps(value))
    if isinstance(value, bool) != isinstance(read, bool):
        return False
    return bool(read == value)


def check_drift(lake: Lake, seed: int, engines: tuple[str, ...]) -> str:
    """Live through one table's life; every value is found by an equality, or announced with the right count."""
    chance = random.Random(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(drift, "MIN_MISFITS", chance.choice([3, 10]))
        table, went_in = live(lake, chance, f"t{seed}", patch)
    kind = str(table.schema["v"].type)
    read = table.scan(["v"], ordered=True, dynamic="cbor").read_all()["v"].to_pylist()
    if kind == "dynamic":
        read = [None if value is None else dynamic.decode(value) for value in read]
    lost = 0
    for value, found in zip(went_in, read, strict=True):
        if found is None:
            lost += 1
        else:
            # A number or boolean that came while the column was text is text.
            assert is_found(value, found, kind) or is_found(value, found, "string"), (seed, value, found, kind)
    assert lost == 0 or kind != "dynamic", seed
    for scalar in {repr(each): each for each in read if isinstance(each, bool | int | float | str)}.values():
        if not (isinstance(scalar, float) and math.isnan(scalar)):
            wanted = sum(is_found(scalar, each, kind) for each in read)
            for prune in (True, False):
                rows = table.scan(["ts"], Equals("v", scalar), prune=prune).read_all().num_rows
                assert rows == wanted, (seed, scalar, kind, prune)
    for engine in engines:
        result = lake.sql(f"select v from t{seed}", engine=engine)
        assert result.to_arrow()["v"].null_count == lost, (seed, engine)
        if lost:
            [said] = result.warnings
            assert said.startswith(f"{lost:,} value"), (seed, said, lost)
        else:
            assert result.warnings == (), (seed, result.warnings)
    return kind


def test_every_value_is_found_or_announced(lake: Lake) -> None:
    kinds = Counter(check_drift(lake, seed, ("local",)) for seed in range(24))
    assert {"dynamic", "string", "real"} <= kinds.keys(), kinds


@pytest.mark.torture
def test_every_value_is_found_or_announced_for_long(lake: Lake) -> None:
    for seed in range(1_000, 2_500):
        check_drift(lake, seed, ("local",))


def test_a_field_that_is_new_and_nested_is_a_column_of_its_own(lake: Lake) -> None:
    table = lake.create_table("m", {"ts": "timestamp"}, time="ts", flush_age="off")
    table.append([{"ts": NOON, "http": {"status": 504}}, {"ts": NOON, "http": {"status": 200}}])
    assert str(table.schema["http"].type) == "dynamic"
    assert count(table, "http.status == 504") == 1
    for found in (lake.kql("m | where http.status == 504"), lake.sql("select * from m where http.status = 504")):
        assert len(found) == 1


def test_a_name_that_is_no_column_is_found_in_the_overflow_column(lake: Lake) -> None:
    table = lake.create_table("m", {"ts": "timestamp"}, time="ts", flush_age="off")
    fillers = {f"f{n}": n for n in range(40)}  # more than become columns
    table.append([{"ts": NOON, **fillers, "late": n, "nest": {"deep": n}} for n in range(10)])
    assert not {"f39", "late", "nest"} & set(table.schema.names)
    for _ in range(2):
        assert (
            count(table, "late == 7") == count(table, "nest.deep == 7") == count(table, "f39 == 39 and late > 8") == 1
        )
        assert len(table.scan(["late"], "late == 3").read_all()) == 1
        assert lake.kql("m | where late == 7 | project late, nest.deep").to_arrow().to_pylist() == [
            {"late": "7", "nest_deep": "7"}
        ]
        assert lake.sql("select count(*) n from m where late >= 5").to_arrow()["n"].to_pylist() == [5]
        assert lake.sql("select sum(late) n, max(nest.deep::int) d from m").to_arrow().to_pylist() == [
            {"n": 45, "d": 9}
        ]
        table.flush()
    for ask in (
        lambda: lake.kql("m | where lat == 7"),
        lambda: lake.sql("select lat from m"),
        lambda: table.scan(["ts"], "lat == 1"),
    ):
        with pytest.raises(QueryError, match="nor is it in _overflow"):
            ask()


def test_the_command_line_says_what_became_of_values_that_changed_their_type(tmp_path: Path) -> None:
    where = str(tmp_path / "lake")
    with tidelake.connect(where) as lake:
        table = lake.create_table("m", {"ts": "timestamp", "v": "long", "w": "long"}, time="ts", flush_age="off")
        table.append([{**row, "w": 1} for row in rows_of(list(range(2_000)))])
        table.append([{**row, "w": "bad"} for row in rows_of(["text"] * 30, 5_000)][:9])
        table.flush()

    def said(*words: str) -> str:
        found = CliRunner().invoke(main, [*words, "--lake", where])
        assert found.exit_code == 0, found.output
        return found.output

    lines = tmp_path / "more.ndjson"
    lines.write_text("".join(f'{{"ts":"2026-01-02T00:00:{n:02}Z","v":"word {n}"}}\n' for n in range(40)))
    assert "v was long and is dynamic now: its values are of several types" in said("ingest", "m", str(lines))
    told = said("describe", "m")
    assert "v was long and is dynamic: its values are of several types" in told
    assert "9 values of w in extents do not fit its type, long: see _overflow" in told
    asked = said("query", "m | summarize sum(w)")
    assert "warning: 9 values of w do not fit its type, long, and are null in this answer" in asked
    assert "warning: 9 values of w" in said("explain", "m | summarize sum(w)")


def test_a_dynamic_value_of_another_type_is_neither_equal_nor_unequal_in_sql(lake: Lake) -> None:
    table = lake.create_table("m", {"ts": "timestamp", "d": "dynamic"}, time="ts", flush_age="off")
    table.append([{"ts": NOON, "d": value} for value in (5, 7, "text", {"a": 5}, {"a": 6}, {"a": "x"})])
    table.flush()
    for condition, rows in {"d <> 5": 1, "not (d = 5)": 1, "d.a <> 5": 1, "not d.a in (5, 8)": 1, "d.a = 5": 1}.items():
        counted = lake.sql(f"select count(*) n from m where {condition}").to_arrow()["n"].to_pylist()
        assert (counted, len(lake.sql(f"select ts from m where {condition}"))) == ([rows], rows), condition
