"""Read random tables in the JVM, whole and damaged: rows are those that were written, damage is an error in words.

Splits are described as for a scan, and read by the classes that a task has, without a query around them: values go to
a file, block by block, and are compared bit by bit. Each case says its seed. It does not test what is described.
"""

from __future__ import annotations

import random
import struct
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import tidelake
from tests.spark.test_direct import described_as, stored
from tests.support.jvm_reads import Reads
from tidelake import Lake
from tidelake.format import WriteOptions, codecs
from tidelake.write import stager

LEAST, MOST = -(2**63), 2**63 - 1
SIZES = (1, 2, 7, 8, 9, 63, 64, 65, 127, 128, 129, 255, 256, 257, 512, 513, 1000, 2048, 3000)
TYPES = {
    "int": pa.int32(), "long": pa.int64(), "real": pa.float64(), "bool": pa.bool_(), "string": pa.string(),
    "timestamp": pa.timestamp("us", "UTC"),
}  # fmt: skip

Numbers = npt.NDArray[np.int64]


@pytest.fixture
def session(spark: SparkSession, lake: Lake) -> SparkSession:
    return tidelake.spark.register(spark.newSession(), lake=lake)


@pytest.fixture(scope="module")
def jvm(spark: SparkSession) -> Reads:
    return Reads(spark)


def whole_numbers(chance: np.random.Generator, count: int, least: int, most: int) -> Numbers:
    """Make numbers of one of many kinds, between two ends."""
    at = np.arange(count)
    wide = chance.integers(least, most, count, endpoint=True)
    rare = chance.random(count) < 0.02
    kinds: list[Callable[[], Any]] = [
        lambda: np.full(count, wide[0]),
        lambda: wide,
        lambda: wide % 100,
        lambda: wide % 50_000 - 20_000,
        lambda: chance.choice(np.array([least, most, 0, -1, 1]), count),
        lambda: np.cumsum(wide % 500),
        lambda: 1_700_000_000 + at * 3 + wide % 3,
        lambda: np.where(rare, wide, at % 7),
        lambda: wide % 10**4 * 1000 + np.where(rare, wide % 777, 0),
        lambda: np.resize(wide[:13], count),
        lambda: np.minimum(chance.pareto(1.0, count) * 100, 2**31 - 1),
    ]
    return np.asarray(kinds[chance.integers(len(kinds))]()).astype(np.int64)


def real_numbers(chance: np.random.Generator, count: int) -> npt.NDArray[np.float64]:
    """Make doubles of one of many kinds, with any bits."""
    some, bits = chance.normal(size=count), chance.integers(LEAST, MOST, count, endpoint=True)
    odd = chance.choice([np.nan, -np.nan, np.inf, -np.inf, -0.0, 0.0, 5e-324, 1.7e308], count)
    cents = np.round(chance.lognormal(3, 1, count), int(chance.integers(0, 10)))
    kinds: list[Any] = [
        some, odd, cents, bits.view(np.float64), some.astype(np.float32), np.where(some < -1, odd, cents),
        np.full(count, odd[0]), np.resize(some[:20], count), np.rint(some * 1000), np.cumsum(some),
    ]  # fmt: skip
    return np.ascontiguousarray(kinds[chance.integers(len(kinds))], np.float64)


def lines(chance: np.random.Generator, count: int) -> list[str]:
    """Make texts of one of many kinds."""
    rolls = random.Random(int(chance.integers(2**32)))
    words = [
        "".join(rolls.choices("abcdefghijé漢", k=rolls.randrange(1, 9))) for _ in range(rolls.choice([2, 60, 400]))
    ]

    def line(at: int) -> str:
        kinds = [
            f"job {at} of user{rolls.randrange(50)} took {rolls.randrange(10**6):09}ms, job {at} é done",
            f"from 10.0.{rolls.randrange(9)}.{rolls.randrange(256)} [{rolls.getrandbits(40):x}] {rolls.choice(words)}",
            f"pid{at:07}end {'0' * rolls.randrange(3)}{rolls.randrange(99)} {2**63 - 2 + rolls.randrange(3)}",
            f"rare {at} thing {rolls.randrange(99)}", "nothing in it", "", "7", "漢字 9 🌊",
        ]  # fmt: skip
        return rolls.choices(kinds, [50, 50, 30, 1, 5, 2, 2, 2])[0]

    kinds: list[Callable[[int], str]] = [
        lambda at: "the same 漢",
        lambda at: "",
        lambda at: "" if at % 50 else chr(0x4E00 + at) + "\0",
        lambda at: rolls.choice(words),
        lambda at: words[min(len(words) - 1, int(rolls.paretovariate(1)))],
        lambda at: " ".join(rolls.choices(words, k=8)),
        lambda at: "".join(rolls.choices("ab🌊", k=at % 40)),
        lambda at: f"{rolls.getrandbits(64):016x}",
        lambda at: "x" * (rolls.randrange(20_000) if at % 400 == 3 else at % 3),
        line,
        line,
        line,
    ]
    made = rolls.choice(kinds)
    return [made(at) for at in range(count)]


def column(chance: np.random.Generator, kind: str, count: int) -> pa.Array:
    """Make a column of a type, with nulls of one of many kinds."""
    share = chance.choice([0, 0, 0, 0.01, 0.3, 0.97, 1.0])
    mask = chance.random(count) < share
    if chance.random() < 0.2:
        mask = (np.arange(count) // 100 % 2 == 0) & bool(share)  # whole blocks of them
    if kind == "string":
        return pa.array(lines(chance, count), pa.string(), mask=mask)
    if kind == "real":
        return pa.array(real_numbers(chance, count), mask=mask)
    if kind == "bool":
        return pa.array(chance.random(count) < chance.choice([0, 0.003, 0.5, 1]), mask=mask)
    ends = (-(2**31), 2**31 - 1) if kind == "int" else (LEAST, MOST)
    values = whole_numbers(chance, count, *ends)
    return pa.array(np.clip(values, *ends), pa.int64(), mask=mask).cast(TYPES[kind])


def near(chance: np.random.Generator, of: pa.Array) -> pa.Array:
    """Make a column whose numbers lie near those of another."""
    values = of.cast(pa.int64()).fill_null(0).to_numpy()
    ends = (-(2**31), 2**31 - 1) if of.type == pa.int32() else (LEAST, MOST)
    room = values < ends[1] - 30
    apart = np.where(room, values + np.where(room, chance.integers(0, 30, len(of)), 0), values)
    return pa.array(apart, pa.int64(), mask=chance.random(len(of)) < chance.choice([0, 0.3])).cast(of.type)


def random_table(chance: np.random.Generator, extents: int = 2) -> tuple[dict[str, str], list[pa.Table]]:
    """Make the columns and the rows of a table, by extents."""
    kinds = {f"{kind}_{at}": kind for kind in TYPES for at in range(int(chance.integers(1, 4)))}
    bases = {name: f"{name}_near" for name, kind in kinds.items() if kind in ("int", "long") and chance.random() < 0.5}
    kinds |= {other: kinds[name] for name, other in bases.items()}
    found, first = [], 0
    for _ in range(extents):
        count = int(chance.choice(SIZES))
        made = {name: column(chance, kind, count) for name, kind in kinds.items() if name not in bases.values()}
        if bases:
            made |= {name: made[name].fill_null(5) for name in bases}
            made |= {other: near(chance, made[name]) for name, other in bases.items()}
        ts = pa.array(np.arange(first, first + count) * 1000, TYPES["timestamp"])
        found.append(pa.table({"ts": ts, **{name: made[name] for name in kinds}}))
        first += count
    return {"ts": "timestamp", **kinds}, found


def write(lake: Lake, name: str, seed: int, patched: pytest.MonkeyPatch, format: str) -> pa.Table:
    """Write a random table in codecs and blocks that chance chooses, too; return its rows."""
    chance = np.random.default_rng(seed)
    kinds, parts = random_table(chance)
    block_rows = int(chance.choice([1 << 16, 1 << 16, 700, 256, 128, 50]))
    if chance.random() < 0.5:
        patched.setattr(codecs, "_INTS", (codecs._INTS[chance.integers(len(codecs._INTS))],))
        patched.setattr(codecs, "_REALS", (codecs._plain_ints, codecs._REALS[chance.integers(len(codecs._REALS))]))
    patched.setattr(stager, "BLOCK_ROWS", block_rows)
    patched.setattr(stager, "block_rows_for", lambda *_: block_rows)
    table = lake.create_table(name, kinds, time="ts", format=format, flush_age="off")
    for part in parts:
        table.append(part)
        table.flush()
    return pa.concat_tables(parts)


def flat(values: pa.Array) -> tuple[bytes, list[bytes] | bytes]:
    """Return which values there are, and what they are, nulls as zeros."""
    valid = bytes(values.is_valid().to_numpy(zero_copy_only=False).astype(np.uint8))
    if pa.types.is_string(values.type):
        return valid, [text.encode() for text in values.fill_null("").to_pylist()]
    if pa.types.is_boolean(values.type):
        return valid, values.fill_null(False).cast(pa.int64()).to_numpy().tobytes()
    if pa.types.is_float64(values.type):
        bits = pa.Array.from_buffers(pa.int64(), len(values), values.buffers(), -1, values.offset)
        return valid, bits.fill_null(0).to_numpy().tobytes()
    return valid, values.cast(pa.int64()).fill_null(0).to_numpy().tobytes()


def dumped(data: bytes, kinds: list[str]) -> list[list[tuple[bytes, list[bytes] | bytes]]]:
    """Read what was written of blocks; values of nulls are taken for zeros, as whoever reads them may."""
    at, found = 0, []
    while at < len(data):
        (rows,) = struct.unpack_from(">i", data, at)
        at += 4
        block: list[tuple[bytes, list[bytes] | bytes]] = []
        for kind in kinds:
            valid = data[at : at + rows]
            at += rows
            if kind == "string":
                texts = []
                for row in range(rows):
                    (size,) = struct.unpack_from(">i", data, at)
                    texts.append(data[at + 4 : at + 4 + size] if valid[row] else b"")
                    at += 4 + size
                block.append((valid, texts))
                continue
            values = np.frombuffer(data, ">i8", rows, at).astype(np.int64)
            block.append((valid, np.where(np.frombuffer(valid, np.bool_), values, 0).tobytes()))
            at += 8 * rows
        found.append(block)
    return found


def together(parts: list[tuple[bytes, list[bytes] | bytes]]) -> tuple[bytes, list[bytes] | bytes]:
    values: Any = [each for _, each in parts]
    is_texts = isinstance(values[0], list)
    return b"".join(valid for valid, _ in parts), [text for each in values for text in each] if is_texts else b"".join(
        values
    )


def check_random_tables(
    lake: Lake, jvm: Reads, seeds: range, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Counter[str]:
    """Write tables, read them in the JVM, and compare; return how many columns of which codec there were."""
    seen: Counter[str] = Counter()
    for seed in seeds:
        with monkeypatch.context() as patched:
            name, format = f"o.t{seed}", ("tlm2", "tlm3", "tlm3")[seed % 3]
            wanted = write(lake, name, seed, patched, format)
        table = lake.table(name)
        reads, blocks = jvm.of(table), []
        for described in stored(lake, name):
            assert described, f"seed {seed}: nothing is described"
            reads.dump(bytearray(described), str(tmp_path / "values"))
            blocks += dumped((tmp_path / "values").read_bytes(), [str(each.type) for each in table.schema])
        by_python = table.to_arrow().sort_by("ts")
        for at, each in enumerate(wanted.column_names):
            expected = flat(wanted.column(each).combine_chunks())
            assert together([block[at] for block in blocks]) == expected, f"seed {seed}: {each}"
            assert flat(by_python.column(each).combine_chunks()) == expected, f"seed {seed}: {each}"
        for extent in table.extents():
            reader: Any = table.handle.footers.open(extent)
            if format == "tlm3":
                seen.update(f"{part.part} {codec}" for part in reader.parts() for codec in part.codecs)
    return seen


CODECS = ("constant", "plain", "zstd", "delta", "pco", "planes", "decimal", "difference", "dictionary", "templates")


def test_random_tables_have_the_rows_that_were_written(
    lake: Lake, jvm: Reads, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = check_random_tables(lake, jvm, range(20, 33), tmp_path, monkeypatch)
    assert {f"values {codec}" for codec in (*CODECS, "nulls")} <= seen.keys()


@pytest.mark.torture
@pytest.mark.parametrize("first", range(1000, 9000, 1000))
def test_many_random_tables_have_the_rows_that_were_written(
    lake: Lake, jvm: Reads, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    first: int,
) -> None:  # fmt: skip
    check_random_tables(lake, jvm, range(first, first + 300), tmp_path, monkeypatch)


def history(session: SparkSession, lake: Lake, seed: int, monkeypatch: pytest.MonkeyPatch) -> str:
    """Write a table whose extents are of several kinds, some rows of which are hot or gone; return its name."""
    chance, name = np.random.default_rng(seed), f"o.h{seed}"
    monkeypatch.setattr(stager, "BLOCK_ROWS", int(chance.choice([1 << 16, 300, 100])))
    kinds, (first, *_) = random_table(chance, 1)
    table = lake.create_table(name, kinds, time="ts", format="tlm3", flush_age="off")
    table.append(first)
    at = 0

    def next_times(count: int) -> pa.Array:
        nonlocal at
        at += 1
        return pa.array(at * 10**9 + np.arange(count) * 1000, TYPES["timestamp"])

    def rows() -> None:
        count = int(chance.choice(SIZES))
        made = {column_name: column(chance, kind, count) for column_name, kind in kinds.items()}
        lake.table(name).append(pa.table({**made, "ts": next_times(count)}))

    def other_rows() -> None:
        """Values that no column of theirs takes, and whole numbers that need a wider one."""
        ts = next_times(1)[0].as_py()
        lake.table(name).append([{"ts": ts, "long_0": "none", "bool_0": 7, "int_0": 5_000_000_000}])

    def another_column() -> None:
        kind = str(chance.choice(list(TYPES)))
        kinds[f"later_{at}_{kind}"] = kind
        lake.table(name).add_column(f"later_{at}_{kind}", kind)
        rows()

    def another_format() -> None:
        format = chance.choice(["tlm2", "tlm3", "parquet"])
        session.sql(f"ALTER TABLE tidelake.{name} SET TBLPROPERTIES ('format' = '{format}')")

    def fewer_rows() -> None:
        session.sql(f"DELETE FROM tidelake.{name} WHERE bool_0 OR string_0 > 'm'")

    steps: list[Callable[[], Any]] = [rows, rows, another_column, another_format, fewer_rows]
    steps += [other_rows] * (seed % 2)  # from then on, what is null may lie elsewhere, which Python alone looks for
    for step in chance.permutation(np.array([*steps, lambda: lake.table(name).flush()], dtype=object)):
        step()
        if chance.random() < 0.6:
            lake.table(name).flush()
    return name


HISTORIES = [pytest.param(range(1), id="few"), pytest.param(range(10, 60), marks=pytest.mark.torture, id="many")]


def with_wrong_sums(description: bytes) -> bytes:
    """Have the JVM take one column of half of the splits for damaged, in any of their blocks."""
    rolls = random.Random(description)
    told = orjson.loads(description) if description and rolls.random() < 0.5 else {}
    blocks = [block for extent in told.get("extents", ()) for block in extent["blocks"]]
    places = [place for place in rolls.choice(blocks or [{"columns": []}])["columns"] if "sum" in place]
    if not places:
        return description
    rolls.choice(places)["sum"] = "0" * 16
    return orjson.dumps(told)


@pytest.mark.parametrize("seeds", HISTORIES)
def test_tables_with_a_history_have_the_rows_that_python_reads(
    session: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch, seeds: range
) -> None:
    by_jvm = 0
    for seed in seeds:
        name = history(session, lake, seed, monkeypatch)
        names = [each for each in lake.table(name).schema.names if each != "_overflow"]
        whole = lake.table(name).to_arrow(names).sort_by("ts")
        assert len(whole) > 0
        for size in ("3000", "60000"):
            by_jvm += sum(map(bool, stored(lake, name, names, splitBytes=size)))
            asked = session.read.format("tidelake").options(lake=lake.where, table=name, splitBytes=size)
            with described_as(monkeypatch, with_wrong_sums if size == "60000" else lambda each: each):
                found = asked.load().select(*names).toArrow().sort_by("ts")
            for each in names:
                values, expected = (table.column(each).combine_chunks() for table in (found, whole))
                assert flat(values) == flat(expected.cast(values.type)), f"seed {seed}: {each}"
    assert by_jvm


def damageable(
    lake: Lake,
    jvm: Reads,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    format: str,
    seed: int,
    *,
    plain: bool = False,
) -> tuple[Any, bytearray, str]:
    """Write a table of one extent, compressed or not; return what reads it, its description and the file, a copy."""
    with monkeypatch.context() as patched:
        chance = np.random.default_rng(seed)
        kinds, _ = random_table(chance)
        if plain:
            patched.setattr(stager, "WriteOptions", partial(WriteOptions, compression=None))
            patched.setattr(codecs, "PLAIN_SHARE", 0)
            patched.setattr(codecs, "_INTS", (codecs._plain_ints, codecs._pco_ints)[seed % 2 :])
        patched.setattr(stager, "BLOCK_ROWS", 600)
        patched.setattr(stager, "block_rows_for", lambda *_: 600)
        count = 1000
        columns: dict[str, pa.Array] = {name: column(chance, kind, count) for name, kind in kinds.items()}
        columns |= {"ts": pa.array(np.arange(count) * 1000, TYPES["timestamp"])}
        columns |= {"base": pa.array(whole_numbers(chance, count, 0, 2**40)), "same": pa.array(["ab"] * count)}
        columns |= {"near": near(chance, columns["base"])}
        lines_of_jobs = [f"job {at} of user{at * at % 7} took {at * 7919 % 99991:05}ms" for at in range(count)]
        columns |= {"line": pa.array(lines_of_jobs, mask=chance.random(count) < 0.1)}
        kinds |= {"base": "long", "near": "long", "same": "string", "line": "string"}
        table = lake.create_table(f"o.d{seed}", kinds, time="ts", format=format, flush_age="off")
        table.append(pa.table({name: columns[name] for name in kinds}))
        table.flush()
    table.add_column("later", "string")
    table.add_column("last", "long")
    (described,) = stored(lake, f"o.d{seed}")
    told = orjson.loads(described)
    copy = folder / f"copy{seed}"
    copy.write_bytes(Path(told["extents"][0]["file"]).read_bytes())
    told["extents"][0]["file"] = str(copy)
    return jvm.of(lake.table(f"o.d{seed}")), bytearray(orjson.dumps(told)), str(copy)


DAMAGED = [
    pytest.param(format, seeds, count, marks=marks, id=f"{format}-{count * len(seeds)}")
    for seeds, count, marks in (
        (range(1), 700, ()),
        (range(50, 70), 1500, pytest.mark.torture),
    )
    for format in ("tlm2", "tlm3")
]


@pytest.mark.parametrize(("format", "seeds", "count"), DAMAGED)
def test_a_flipped_bit_is_refused_or_changes_nothing(
    lake: Lake, jvm: Reads, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    format: str, seeds: range, count: int,
) -> None:  # fmt: skip
    for seed in seeds:
        reads, described, path = damageable(lake, jvm, tmp_path, monkeypatch, format, seed)
        whole = f"read {reads.dump(described, '/dev/null')}"
        found = Counter(reads.flips(described, path, count, seed))
        assert set(found) <= {whole, "refused"}, f"seed {seed}"
        assert found["refused"] > count // 4, f"seed {seed}"


@pytest.mark.parametrize(("format", "seeds", "count"), DAMAGED)
def test_numbers_of_a_footer_that_cannot_be_are_refused(
    lake: Lake, jvm: Reads, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    format: str, seeds: range, count: int,
) -> None:  # fmt: skip
    for seed in seeds:
        reads, described, path = damageable(lake, jvm, tmp_path, monkeypatch, format, seed)
        found = Counter(reads.misled(described, path, count, seed))
        assert found["refused"] > count // 4, f"seed {seed}"


@pytest.mark.parametrize(("format", "seeds", "count"), DAMAGED)
def test_damage_below_checksums_is_refused_or_read_as_something(
    lake: Lake, jvm: Reads, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    format: str, seeds: range, count: int,
) -> None:  # fmt: skip
    """What a program writes that is mistaken, or worse: nothing leaves the bounds of what was read."""
    for seed in seeds:
        reads, described, path = damageable(lake, jvm, tmp_path, monkeypatch, format, seed, plain=seed % 4 != 1)
        whole = reads.dump(described, "/dev/null")
        found = Counter(reads.spoilt(described, path, count, seed))
        assert found["refused"] > count // 20, f"seed {seed}"
        assert reads.dump(described, "/dev/null") == whole, f"seed {seed}"


def test_nulls_that_a_footer_tells_otherwise_are_refused(
    lake: Lake, jvm: Reads, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is null may lie elsewhere in the row, which is decided by what the footer tells."""
    reads, described, _ = damageable(lake, jvm, tmp_path, monkeypatch, "tlm3", 1)
    told = orjson.loads(described)
    columns = [place for block in told["extents"][0]["blocks"] for place in block["columns"] if "at" in place]
    tried = [place for place in columns if 1 < place["nulls"] < 400]
    assert tried
    for place in tried:
        place["nulls"] -= 1
        with pytest.raises(Exception, match=r"other nulls than its footer tells object="):
            reads.dump(bytearray(orjson.dumps(told)), "/dev/null")
        place["nulls"] += 1
    reads.dump(bytearray(orjson.dumps(told)), "/dev/null")
