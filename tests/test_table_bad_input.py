"""Give a table what it cannot take, or hardly can: a clear error and nothing committed, or all of it kept."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest

from tidelake import dynamic
from tidelake.errors import InvalidInputError, NotFoundError, QueryError, SchemaError, TidelakeError
from tidelake.lake import Lake
from tidelake.table import Table

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
TS = "2026-01-01T12:00:00Z"


@pytest.fixture
def made(lake: Lake) -> Table:
    columns = {"ts": "timestamp", "n": "int", "s": "string", "d": "dynamic", "v": "vector(3)"}
    return lake.create_table("t", columns, flush_age="off")


def line(**fields: Any) -> bytes:
    return orjson.dumps({"ts": TS, **fields})


@pytest.mark.parametrize(
    ("rows", "error", "facts"),
    [
        (line() + b"\n" + line() + b'\n{"n": , "s": 1}\n', InvalidInputError, ("line=3", "column=7")),
        (line() + b'\n{"ts": "2026', InvalidInputError, ("line=2",)),
        (line() + b"\n[1, 2]\n", InvalidInputError, ("line=2",)),
        (line() + b"\n\xff\xfe\n", InvalidInputError, ("line=2",)),
        (line(v=[1, 2]), SchemaError, ("wanted=3", "got=2", "column=v", "line=1")),
        (line(v=[1, 2, "a"]), SchemaError, ("column=v", "line=1")),
        (line(v=5), SchemaError, ("column=v",)),
        ([{"ts": NOON, "v": [1.0]}], SchemaError, ("wanted=3", "got=1", "row=1")),
        (b'{"n": 1}', InvalidInputError, ("no time", "line=1")),
        (b'{"ts": null}', InvalidInputError, ("no time", "line=1")),
        (line() + b'\n{"ts": "yesterday"}', InvalidInputError, ("no time", "line=2", "yesterday")),
        ([{"ts": NOON}, {"ts": None}], InvalidInputError, ("no time", "row=2")),
        ([{"ts": NOON}, 5], InvalidInputError, ("must be a mapping", "row=2")),
        ([{"ts": NOON, 5: 1}], InvalidInputError, ("keys are text", "row=1")),
        ([{"ts": NOON, "d": object()}], InvalidInputError, ("not a value", "column=d")),
        ([{"ts": NOON, "s": "\ud800"}], InvalidInputError, ("surrogate", "row=1")),
        ({"ts": NOON}, InvalidInputError, ("a list of dicts",)),
        (17, InvalidInputError, ("a list of dicts",)),
        ("nowhere.ndjson", NotFoundError, ("no such file",)),
        ("nowhere.xlsx", NotFoundError, ("no such file",)),
        (__file__, InvalidInputError, ("no time was found in the lines",)),
        (pa.table({"ts": [None], "n": [1]}), InvalidInputError, ("no time",)),
        (pa.table({"n": [1]}), InvalidInputError, ("no time",)),
        (pa.table({"ts": ["never"]}), InvalidInputError, ("no time", "never")),
    ],
)
def test_append_says_what_is_wrong_and_commits_nothing(
    made: Table, rows: Any, error: type[TidelakeError], facts: tuple[str, ...]
) -> None:
    with pytest.raises(error) as caught:
        made.append(rows, key="once")
    assert [fact for fact in facts if fact not in str(caught.value)] == [], str(caught.value)
    assert (made.snapshot.sequence, made.schema.version) == (1, 1)
    assert made.append([{"ts": NOON}], key="once").replayed is False  # the key was not used up


def test_a_bad_line_far_into_a_file_commits_nothing_of_it(made: Table, tmp_path: Path) -> None:
    path = tmp_path / "rows.ndjson"
    good = line(s="x" * 1_000) + b"\n"
    path.write_bytes(good * 20_000 + b'{"ts": oops}\n' + good)
    with pytest.raises(InvalidInputError, match="line=20001"):
        made.append(path)
    assert made.scan().read_all().num_rows == 0
    assert made.handle.catalog.head(made.handle.scope).sequence == 1


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("nn == 1", "no column 'nn', did you mean 'n'"),
        ("n == 'one'", "compare it with a number"),
        ("n has 'one'", "cannot be asked for text"),
        ("s > 5", "compare it with text"),
        ("n['a'] == 5", "cannot be asked for a path"),
        ("ts > 'soon'", "not a time"),
        ("n == 1 and", "expected a column"),
        ("n === 1", "cannot read|expected"),
        ("s matches regex '['", "not a regular expression"),
        ("", "empty condition"),
    ],
)
def test_where_says_what_is_wrong(made: Table, where: str, message: str) -> None:
    with pytest.raises(QueryError, match=message):
        made.scan(where=where)


def test_scan_refuses_what_it_cannot_give(made: Table) -> None:
    for ask, error in (
        (lambda: made.scan(["nowhere"]), NotFoundError),
        (lambda: made.scan(limit=-1), InvalidInputError),
        (lambda: made.scan(start="2026-01-02T00:00:00Z", end=TS), InvalidInputError),
        (lambda: made.scan(start="soon"), InvalidInputError),
        (lambda: made.promote("d.x", "timestamp"), SchemaError),
        (lambda: made.promote("n.x", "int"), SchemaError),
        (lambda: made.promote("d", "int"), SchemaError),
        (lambda: made.add_column("n", "string"), SchemaError),
        (lambda: made.add_column("n", "nonsense"), SchemaError),
        (lambda: made.add_column(" ", "int"), SchemaError),
    ):
        with pytest.raises(error):
            ask()
    assert made.snapshot.sequence == 1


def test_a_value_of_100_mb_is_kept_whole(made: Table) -> None:
    text = "needle " + "x" * (100 << 20)
    report = made.append([{"ts": NOON, "s": text, "n": 1}, {"ts": NOON, "s": "small", "n": 2}])
    assert (report.rows, report.extents) == (2, 1)
    assert made.scan(["s"], "n == 1").read_all()["s"][0].as_buffer().size == len(text)
    assert made.scan(["n"], "s startswith 'needle'").read_all()["n"].to_pylist() == [1]
    made.append(b'{"ts": "%s", "d": {"deep": "%s"}, "n": 3}' % (TS.encode(), b"y" * (8 << 20)))
    assert len(dynamic.decode(made.scan(["d"], "n == 3", dynamic="cbor").read_all()["d"][0].as_py())["deep"]) == 8 << 20
    assert made.scan(["n"], "exists(d['deep'])").read_all()["n"].to_pylist() == [3]


@pytest.mark.parametrize("form", ["dicts", "ndjson", "arrow"])
def test_ten_thousand_keys_in_one_batch_are_all_kept(made: Table, form: str) -> None:
    rows = [{"ts": TS, **{f"key-{row * 100 + n:05d}": n for n in range(100)}} for row in range(100)]
    if form == "dicts":
        report = made.append(rows)
    elif form == "ndjson":
        report = made.append(b"\n".join(map(orjson.dumps, rows)))
    else:
        keys = [key for row in rows for key in row if key != "ts"]
        fields = [("ts", pa.utf8()), *((key, pa.int64()) for key in keys)]
        report = made.append(pa.Table.from_pylist(rows, pa.schema(fields)))
    assert report.rows == 100
    assert len(made.schema) <= 5 + 2 * 32 + 1
    names = [name for name in made.schema.names if name.startswith("key-")]
    found = made.scan([*names, "_overflow"], dynamic="cbor").read_all().to_pylist()
    kept: dict[str, int] = {}
    for row in found:
        overflow = row.pop("_overflow")
        kept |= {name: value for name, value in row.items() if value is not None}
        kept |= {} if overflow is None else dynamic.decode(overflow)
    assert kept == {key: value for row in rows for key, value in row.items() if key != "ts"}
    assert made.scan(["ts"], "_overflow['key-09999'] == 99").read_all().num_rows == 1


@pytest.mark.parametrize("form", ["dicts", "ndjson"])
def test_nesting_a_thousand_deep_is_refused_and_what_is_allowed_is_kept(made: Table, form: str) -> None:
    def nested(depth: int) -> Any:
        value: Any = {"end": 1}
        for _ in range(depth):
            value = [value]
        return value

    def rows(depth: int) -> Any:
        if form == "dicts":
            return [{"ts": TS, "n": 7, "d": nested(depth)}]
        return b'{"ts":"%s","n":7,"d":' % TS.encode() + b"[" * depth + b'{"end":1}' + b"]" * depth + b"}"

    with pytest.raises(InvalidInputError, match="deep"):
        made.append(rows(1_000))
    assert made.snapshot.sequence == 1
    made.append(rows(100))
    assert dynamic.decode(made.scan(["d"], dynamic="cbor").read_all()["d"][0].as_py()) == nested(100)
    made.flush()
    assert made.scan(["n"], "d is not null").read_all()["n"].to_pylist() == [7]


def test_an_impossible_cast_goes_to_the_overflow_column(made: Table) -> None:
    values: list[Any] = ["x", 2**200, True, [1], {"a": None}, b"\x00"]
    report = made.append([{"ts": NOON, "n": value} for value in values])
    assert (report.rows, report.overflowed) == (len(values), len(values))
    found = made.scan(["n", "_overflow"], dynamic="cbor").read_all().to_pylist()
    assert [row["n"] for row in found] == [None] * len(values)
    assert [dynamic.decode(row["_overflow"])["n"] for row in found] == values
