"""Read pages of the third body in the JVM: the rows are those that Python reads, and what is damaged is an error.

It damages a few of them, and ``test_direct_fuzz`` thousands.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pytest
from pyspark.sql import Row, SparkSession

import tidelake
from tests.spark.test_direct import COLUMNS, described_as, no_tickets, read, rows, stored
from tidelake import Lake
from tidelake.format import codecs

ROWS = 3_000
LEAST, MOST = -(2**63), 2**63 - 1
NAMES = {
    pa.int32(): "int", pa.int64(): "long", pa.float64(): "real", pa.bool_(): "bool", pa.string(): "string",
    pa.timestamp("us", "UTC"): "timestamp",
}  # fmt: skip


@pytest.fixture
def session(spark: SparkSession, lake: Lake) -> SparkSession:
    return tidelake.spark.register(spark.newSession(), lake=lake)


def in_jvm_and_python(session: SparkSession, monkeypatch: pytest.MonkeyPatch, table: str) -> list[Row]:
    """Read a table in the JVM alone, and compare what Python reads."""
    with described_as(monkeypatch, lambda _: b""):
        expected = read(session, table)
    with no_tickets(monkeypatch):
        found = read(session, table)
    assert list(map(repr, found)) == list(map(repr, expected))  # for which a NaN is a NaN
    return found


def made(lake: Lake, name: str, columns: dict[str, pa.Array], pieces: int = 1) -> dict[str, set[str]]:
    """Store columns in extents of their own; return the codecs of each column's parts."""
    count = len(next(iter(columns.values())))
    ts = pa.array(np.arange(count) * 1000, pa.timestamp("us", "UTC"))
    whole = pa.table({"ts": ts, **columns})
    kinds = {field.name: NAMES[field.type] for field in whole.schema}
    table = lake.create_table(name, kinds, time="ts", format="tlm3", flush_age="off")
    for at in range(pieces):
        table.append(whole.slice(at * count // pieces, (at + 1) * count // pieces - at * count // pieces))
        table.flush()
    found: dict[str, set[str]] = {}
    for extent in table.handle.catalog.extents(table.handle.scope):
        assert extent.format == "tlm3"
        reader: Any = table.handle.footers.open(extent)
        for part in reader.parts():
            found.setdefault(f"{part.column} {part.part}", set()).update(part.codecs)
    return found


def nulled(values: pa.Array, share: float) -> pa.Array:
    mask = np.random.default_rng(7).random(len(values)) < share
    return pa.array(values.to_pylist(), values.type, mask=mask) if share else values


def integers() -> dict[str, npt.NDArray[np.int64]]:
    chance = np.random.default_rng(1)
    return {
        "one": chance.integers(0, 200, ROWS),
        "two": chance.integers(-30_000, 30_000, ROWS),
        "four": chance.integers(-(2**31), 2**31, ROWS),
        "eight": chance.integers(LEAST, MOST, ROWS),
        "ends": chance.choice(np.array([LEAST, MOST, 0, -1]), ROWS),
        "rising": np.cumsum(chance.integers(0, 300, ROWS)),
        "same": np.full(ROWS, LEAST),
    }


@pytest.mark.parametrize("codec", codecs._INTS)
def test_every_codec_of_integers_is_read(
    session: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch, codec: Any
) -> None:
    monkeypatch.setattr(codecs, "_INTS", (codec,))
    values = integers()
    columns = {
        name: nulled(pa.array(each), share) for share, (name, each) in zip([0, 0.3] * 4, values.items(), strict=False)
    }
    fitting = [name for name, each in values.items() if each.min() >= -(2**31) and each.max() < 2**31]
    columns |= {f"int_{name}": nulled(pa.array(values[name], pa.int32()), 0.1) for name in fitting}
    columns["time"] = pa.array(values["two"], pa.timestamp("us", "UTC"))
    found = made(lake, "o.t", columns, pieces=2)
    name = codecs.codec_name(memoryview(codec(values["rising"])))
    assert {found[f"{each} values"] == {name} for each in ("one", "two", "four", "eight", "rising")} == {True}
    assert found["same values"] == {"constant"}
    assert len(in_jvm_and_python(session, monkeypatch, "o.t")) == ROWS


def test_numbers_and_booleans_of_every_kind_are_read(
    session: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = np.random.default_rng(2)
    bits, cents = chance.integers(LEAST, MOST, ROWS), np.round(chance.lognormal(3, 1, ROWS), 2)
    odd = np.where(
        chance.random(ROWS) < 0.1, chance.choice([np.nan, -0.0, np.inf, 5e-324], ROWS), chance.normal(size=ROWS)
    )
    columns: dict[str, pa.Array] = {
        "constant": pa.array(np.full(ROWS, -0.0)), "plain": pa.array(bits.view(np.float64)),
        "zstd": pa.array(np.resize(odd[:200], ROWS)), "decimal": pa.array(cents), "pco": pa.array(odd),
        "flag_constant": pa.array([True] * ROWS), "flag_plain": pa.array(chance.random(ROWS) < 0.5),
        "flag_zstd": pa.array(np.arange(ROWS) % 500 == 3),
    }  # fmt: skip
    some = {f"some_{name}": nulled(each, 0.4) for name, each in columns.items()}
    none = {"none": pa.nulls(ROWS, pa.float64()), "no_flag": pa.nulls(ROWS, pa.bool_())}
    found = made(lake, "o.t", columns | some | none)
    for name in columns:
        assert name.removeprefix("flag_") in found[f"{name} values"]
        assert name.removeprefix("flag_") in found[f"some_{name} values"]
    assert found["none values"] == found["no_flag values"] == {"nulls"}
    assert len(in_jvm_and_python(session, monkeypatch, "o.t")) == ROWS


def test_differences_are_read_with_their_base_and_without(
    session: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = np.random.default_rng(3)
    base = chance.integers(-(2**30), 2**30, ROWS)
    near = {name: base + chance.integers(0, 30, ROWS) for name in ("a", "b")}
    columns = {
        "base": pa.array(base, pa.int32()), "a": pa.array(near["a"], pa.int32()),
        "b": nulled(pa.array(near["b"], pa.int32()), 0.3), "wide": pa.array(base * 7), "c": pa.array(base * 7 - 3),
        "d": nulled(pa.array(near["a"] * 7), 0.5), "absent": pa.nulls(ROWS, pa.int32()),
    }  # fmt: skip
    found = made(lake, "o.t", columns, pieces=2)
    apart = [name for name in columns if found[f"{name} values"] == {"difference"}]
    assert len(apart) == 4
    in_jvm_and_python(session, monkeypatch, "o.t")
    for name in apart:
        asked = f"SELECT sum({name}), count({name}), bit_xor({name}) FROM tidelake.o.t"
        with no_tickets(monkeypatch):
            by_jvm = session.sql(asked).collect()
        with described_as(monkeypatch, lambda _: b""):
            assert session.sql(asked).collect() == by_jvm


def texts() -> dict[str, list[str]]:
    chance = random.Random(5)
    words = ["".join(chance.choices("abcdefghij", k=6)) for _ in range(300)]

    def line(at: int) -> str:
        """Return a line of a log, one of whose templates is rare."""
        kinds = [
            f"job {at} of user{chance.randrange(50)} took {chance.randrange(10**6):09}ms, job {at} é done",
            f"connection from 10.0.{chance.randrange(9)}.{chance.randrange(256)} closed: x{chance.getrandbits(70):x}",
            f"rare {at} thing {chance.randrange(99)}",
        ]
        return chance.choices(kinds, [50, 50, 1])[0] if at % 100 else ""

    return {
        "constant": ["漢 the same"] * ROWS,
        "plain": [chr(0x4E00 + at) if at % 150 == 7 else "" for at in range(ROWS)],
        "zstd": ["".join(chance.choices("ab", k=at % 40)) for at in range(ROWS)],
        "dictionary": [chance.choice(words) for _ in range(ROWS)],
        "templates": [line(at) for at in range(ROWS)],
        "words": [" ".join(chance.choices(words, k=8)) for _ in range(ROWS)],
    }


@pytest.mark.parametrize("share", [0, 0.3, 0.99])
def test_texts_of_every_codec_are_read(
    session: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch, share: float
) -> None:
    columns = {name: nulled(pa.array(each), share) for name, each in texts().items()}
    columns |= {"none": pa.nulls(ROWS, pa.string()), "empty": pa.array([""] * ROWS)}
    found = made(lake, "o.t", columns, pieces=2)
    if share < 0.5:
        for name in ("constant", "plain", "zstd", "dictionary", "templates"):
            assert found[f"{name} values"] == {name}
        assert found["words values"] == {"templates"}
    by_row = in_jvm_and_python(session, monkeypatch, "o.t")
    assert {name: [row[name] for row in by_row] for name in columns} == {
        name: each.to_pylist() for name, each in columns.items()
    }
    for time_zone in ("Asia/Tokyo", "America/St_Johns"):
        session.conf.set("spark.sql.session.timeZone", time_zone)
        in_jvm_and_python(session, monkeypatch, "o.t")


def test_extents_of_both_bodies_are_read_in_one_split_and_lack_columns(
    session: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = lake.create_table("o.t", COLUMNS, time="ts", flush_age="off")
    for at, format in enumerate(("tlm2", "tlm3", "tlm2", "tlm3")):
        session.sql(f"ALTER TABLE tidelake.o.t SET TBLPROPERTIES ('format' = '{format}')")
        table = lake.table("o.t")
        table.append([{**row, "ts": row["ts"].replace("T00", f"T{at:02}")} for row in rows(900, at)])
        table.flush()
        if at == 1:
            session.sql("ALTER TABLE tidelake.o.t ADD COLUMN later STRING")
            session.sql("UPDATE tidelake.o.t SET later = concat('at ', code) WHERE substring(code, 4, 1) = '7'")
    kinds = [["shared" in extent for extent in orjson.loads(each)["extents"]] for each in stored(lake, "o.t")]
    assert any(True in each and False in each for each in kinds)
    found = in_jvm_and_python(session, monkeypatch, "o.t")
    assert len(found) == 3600
    assert sum(row.later is not None for row in found) == 180


def described_pages(lake: Lake, name: str) -> tuple[dict[str, Any], Path]:
    (told_of,) = stored(lake, name)
    told = orjson.loads(told_of)
    return told, Path(told["extents"][0]["file"])


def damaged_table(lake: Lake) -> tuple[dict[str, Any], Path]:
    chance = np.random.default_rng(6)
    lines = texts()
    columns: dict[str, pa.Array] = {name: nulled(pa.array(lines[name]), 0.1) for name in lines}
    base = chance.integers(0, 2**30, ROWS)
    columns |= {"base": pa.array(base), "near": pa.array(base + 3 + base % 7), "real": pa.array(np.round(base / 7, 2))}
    columns |= {"flag": pa.array(base % 9 == 1), "k": pa.array(np.cumsum(base % 300))}
    made(lake, "o.t", columns)
    return described_pages(lake, "o.t")


def places_of(told: Any) -> list[dict[str, Any]]:
    """Return all places that a description has, wherever they stand."""
    inner = told.values() if isinstance(told, dict) else told if isinstance(told, list) else []
    found = [place for each in inner for place in places_of(each)]
    return [told, *found] if isinstance(told, dict) and "at" in told else found


def test_a_flipped_bit_of_a_page_is_an_error(session: SparkSession, lake: Lake, tmp_path: Path) -> None:
    told, file = damaged_table(lake)
    data, chance = file.read_bytes(), random.Random(8)
    file.chmod(0o644)
    places = places_of(told)
    assert len(places) > 14
    asked = "SELECT " + ", ".join(f"bit_xor(xxhash64({name}))" for name in lake.table("o.t").schema.names)
    for place in chance.sample(places, 5):
        broken = bytearray(data)
        broken[place["at"] + chance.randrange(place["len"])] ^= 1 << chance.randrange(8)
        file.write_bytes(broken)
        with pytest.raises(Exception, match=r"checksum mismatch.*object="):
            session.sql(f"{asked} FROM tidelake.o.t").collect()
    file.write_bytes(data)
    assert len(session.sql(f"{asked} FROM tidelake.o.t").collect()) == 1


def test_python_goes_on_where_a_dictionary_cannot_be_read(
    session: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(lake, "o.t", {name: pa.array(each) for name, each in texts().items()}, pieces=3)
    expected = [row["dictionary"] for row in lake.table("o.t").to_arrow().sort_by("ts").to_pylist()]

    def with_other_sum(of: str, extent: int) -> Any:
        def change(description: bytes) -> bytes:
            told = orjson.loads(description)
            for each in told["extents"][extent]["shared"]:
                if each and of in each:
                    each[of]["sum"] = "0" * 16
            return orjson.dumps(told)

        return change

    for change in (with_other_sum("dictionary", 0), with_other_sum("words", 1), with_other_sum("templates", 2)):
        with described_as(monkeypatch, change):
            assert [row.dictionary for row in read(session, "o.t")] == expected
