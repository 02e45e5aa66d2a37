"""Inspect extents of every sort, whole and damaged."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from tidelake.cli.inspect import MAX_BLOCKS_SHOWN, ExtentReport, anatomy, inspect_extent, size_text, time_text
from tidelake.errors import CorruptExtent
from tidelake.format import WriteOptions, postings, segment_format
from tidelake.model.schema import Schema
from tidelake.objects import ObjectStore

DOCUMENT = Path(__file__).parents[2] / "docs" / "inspect.md"

SCHEMA = Schema.of(
    {"ts": "timestamp", "service": "string", "code": "long", "took": "real", "ok": "bool", "attributes": "dynamic"}
)
ROWS = 1_000
SERVICES = ["auth", "checkout", "payments", "web"]


def rows_of(count: int = ROWS) -> pa.RecordBatch:
    places = range(count)
    columns = [
        pa.array([place * 1_000_000 for place in places], pa.timestamp("us", tz="UTC")),
        pa.array([SERVICES[place % 4] for place in places]),
        pa.array([None if place % 10 == 0 else place * 7 for place in places], pa.int64()),
        pa.array([place / 8 for place in places]),
        pa.array([place % 2 == 0 for place in places]),
        pa.array([b"\xa1\x61a\x01"] * count, pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA.arrow)


def write(store: ObjectStore, key: str, *, format: str = "tlm", block_rows: int = 250) -> None:
    writer = segment_format(format).start_extent(
        store, key, SCHEMA, extent_id="e1", options=WriteOptions(block_rows=block_rows)
    )
    writer.append(rows_of())
    writer.finish()


def shown(report: ExtentReport, *, width: int = 160) -> str:
    sink = io.StringIO()
    Console(file=sink, width=width).print(anatomy(report))
    return sink.getvalue()


@pytest.mark.parametrize("format", ["tlm", "parquet"])
def test_report_tells_what_was_written(memory_store: ObjectStore, format: str) -> None:
    write(memory_store, "a", format=format)
    report = inspect_extent(memory_store, "a")
    assert (report.key, report.format, report.extent_id, report.time) == ("a", format, "e1", "ts")
    assert (report.rows, report.schema, report.byte_size) == (ROWS, SCHEMA, memory_store.head("a").size)
    assert [(block.rows, block.min_ts_ns, block.max_ts_ns) for block in report.blocks] == [
        (250, start * 10**9, (start + 249) * 10**9) for start in (0, 250, 500, 750)
    ]
    assert (report.state, report.verified, report.mismatches) == ("ok", len(report.states), ())
    assert len(report.states) == 4 * 6 + len(report.shared)
    assert bool(report.shared) is (format == "tlm3")
    sizes = {each.column.name: each.byte_size for each in report.columns}
    assert sizes == {name: sum(block.pieces[name].byte_size for block in report.blocks) for name in SCHEMA.names}
    assert all(0 < each.share == each.byte_size / report.byte_size for each in report.columns)
    assert 0 < report.footer_bytes < report.byte_size - sum(sizes.values())
    known = {each.column.name: each.known for each in report.columns}
    assert (known["code"].nulls, known["code"].low, known["code"].high) == (100, 7, 6993)
    assert (known["service"].low, known["service"].high, known["took"].high) == ("auth", "web", 124.875)


def test_report_estimates_how_many_keys_filters_hold(memory_store: ObjectStore) -> None:
    write(memory_store, "a")
    columns = {each["name"]: each["stats"] for each in inspect_extent(memory_store, "a").to_json()["columns"]}
    assert columns["service"]["distinct"] == sorted({*SERVICES})
    assert columns["code"]["values"]["keys"] == pytest.approx(900, rel=0.05)
    assert columns["attributes"]["paths"] == ["a"]


@pytest.mark.parametrize("format", ["tlm", "tlm3", "parquet"])
def test_report_names_each_piece_whose_bytes_changed(memory_store: ObjectStore, format: str) -> None:
    write(memory_store, "a", format=format)
    whole, data = inspect_extent(memory_store, "a"), bytes(memory_store.get("a"))
    for number, block in enumerate(whole.blocks):
        for name, piece in block.pieces.items():
            damaged = bytearray(data)
            damaged[piece.offset + piece.byte_size // 2] ^= 4
            memory_store.put("a", damaged)
            report = inspect_extent(memory_store, "a")
            assert (report.state, report.mismatches) == ("mismatch", ((number, name, None),))
            assert report.to_json()["checksums"] == {
                "state": "mismatch",
                "pieces": len(whole.states),
                "verified": len(whole.states) - 1,
                "mismatches": [{"block": number, "column": name}],
            }
    assert f"MISMATCH in 1 of {len(whole.states)} pieces: block 3 column attributes" in shown(report)


def test_every_byte_of_an_extent_of_the_third_body_is_verified(
    memory_store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postings, "MIN_ROWS", 256)
    monkeypatch.setattr(postings, "SHARE", 5.0)
    schema = Schema.of({"ts": "timestamp", "line": "string", "host": "string", "event": "dynamic"})
    writer = segment_format("tlm3").start_extent(memory_store, "a", schema, extent_id="e")
    rows = range(1200)
    columns = [
        pa.array(rows, pa.timestamp("us", tz="UTC")),
        pa.array([f"job {n * 7919 % 10007} took {n % 9} ms on rack{n % 7}" for n in rows]),
        pa.array([f"host-{n * n % 11}.example.org" for n in rows]),
        pa.array([b"\xa1\x61k\x66worker" if n * n % 3 else b"\xa1\x61k\x65other" for n in rows], pa.binary()),
    ]
    writer.append(pa.RecordBatch.from_arrays(columns, schema=schema.arrow))
    writer.finish()
    whole, data = inspect_extent(memory_store, "a"), bytes(memory_store.get("a"))
    shared = [(each.column, each.part, each.block) for each in whole.shared]
    assert shared == [
        ("host", "dictionary", None),
        ("line", "templates", None),
        ("line", "words", None),
        ("line", "postings", 0),
        ("event", "directory", None),
        ("event", "dictionary", None),
    ]
    end, found = len(data) - 9 - whole.footer_bytes, set()
    for at in (*range(5, end, 7), end - 1):
        memory_store.put("a", data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :])
        report = inspect_extent(memory_store, "a")
        assert len(report.mismatches) == 1, at
        found |= {(column, part, block) for block, column, part in report.mismatches}
    assert found >= set(shared)
    assert "pieces: column event directory" in shown(report)


def test_report_says_none_when_another_program_wrote_the_file(local_store: ObjectStore, tmp_path: Path) -> None:
    body = pa.BufferOutputStream()
    with pa.ipc.new_file(body, SCHEMA.arrow) as file:
        file.write_batch(rows_of())
    local_store.put("v1.tlm", b"KYMA\x01" + bytes(body.getvalue()))
    pq.write_table(pa.Table.from_batches([rows_of()]), tmp_path / "theirs.parquet")
    local_store.put("theirs.parquet", (tmp_path / "theirs.parquet").read_bytes())
    reports = [inspect_extent(local_store, key) for key in ("v1.tlm", "theirs.parquet")]
    assert [(r.format, r.state, r.verified, r.extent_id, r.rows) for r in reports] == [
        ("tlm", "none", 0, None, ROWS),
        ("parquet", "none", 0, None, ROWS),
    ]
    assert "none: the extent carries no checksums" in shown(reports[0])
    assert "no footer" in shown(reports[0])


def test_extent_without_batches_or_times_is_told_as_such(memory_store: ObjectStore) -> None:
    body = pa.BufferOutputStream()
    with pa.ipc.new_file(body, pa.schema([("n", pa.int64())])):
        pass
    memory_store.put("empty.tlm", b"KYMA\x01" + bytes(body.getvalue()))
    report = inspect_extent(memory_store, "empty.tlm")
    assert (report.rows, report.blocks, report.state, report.time) == (0, (), "none", None)
    assert "0 rows in 0 blocks" in shown(report)
    assert "no timestamp column" in shown(report)


def test_damaged_footer_is_an_error(memory_store: ObjectStore) -> None:
    write(memory_store, "a")
    data = bytearray(bytes(memory_store.get("a")))
    data[-40] ^= 1
    memory_store.put("a", data)
    with pytest.raises(CorruptExtent, match="footer"):
        inspect_extent(memory_store, "a")


def test_anatomy_shows_every_column_and_hides_blocks_past_a_screenful(memory_store: ObjectStore) -> None:
    write(memory_store, "a", block_rows=20)
    text = shown(inspect_extent(memory_store, "a"))
    for name in SCHEMA.names:
        assert re.search(rf"^{name}\b", text, re.MULTILINE)
    assert "'auth' … 'web'" in text
    assert "1970-01-01 00:00:00 to 1970-01-01 00:16:39 UTC, column ts" in text
    assert f"{50 - MAX_BLOCKS_SHOWN} more blocks" in text


def test_anatomy_does_not_obey_what_is_in_the_data(memory_store: ObjectStore) -> None:
    schema = Schema.of({"text": "string"})
    writer = segment_format("tlm").start_extent(memory_store, "a", schema, extent_id="[red]\x1b[2Jx")
    writer.append(pa.record_batch({"text": ["[bold]\x1b[31mred", "\x07z"]}))
    writer.finish()
    text = shown(inspect_extent(memory_store, "a"))
    assert not set("\x1b\x07") & set(text)
    assert r"'\x07z' … '[bold]\x1b[31mred'" in text
    assert r"[red]\x1b[2Jx" in text


def test_json_has_the_documented_shape(memory_store: ObjectStore) -> None:
    text = re.search(r"```json\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    assert text is not None
    documented = orjson.loads(text[1])
    schema = Schema.of({"ts": "timestamp", "service": "string"})
    writer = segment_format("tlm3").start_extent(memory_store, "a.tlm", schema, extent_id="0198c7a2")
    columns = [pa.array([1, 2, 3], pa.timestamp("us", tz="UTC")), pa.array(["auth", "web", "auth"])]
    writer.append(pa.RecordBatch.from_arrays(columns, schema=schema.arrow))
    writer.finish()
    found = orjson.loads(orjson.dumps(inspect_extent(memory_store, "a.tlm").to_json()))
    assert shape_of(found) == shape_of(documented)
    assert found["columns"][1]["stats"] == documented["columns"][1]["stats"]
    assert [found[name] for name in ("schema", "parts")] == [documented[name] for name in ("schema", "parts")]


def shape_of(value: Any) -> Any:
    """Reduce JSON to its keys and the types of its leaves."""
    if isinstance(value, dict):
        return {key: shape_of(held) for key, held in value.items()}
    return [shape_of(held) for held in value] if isinstance(value, list) else type(value).__name__


def test_json_gives_numbers_that_json_lacks_as_text(memory_store: ObjectStore) -> None:
    writer = segment_format("tlm").start_extent(memory_store, "a", Schema.of({"r": "real"}), extent_id="e")
    writer.append(pa.record_batch({"r": [float("-inf"), 1.0, float("nan")]}))
    writer.finish()
    stats = inspect_extent(memory_store, "a").to_json()["columns"][0]["stats"]
    assert stats == {"nulls": 0, "min": {"real": "-inf"}, "max": {"real": "nan"}}


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (5 << 20, "5.0 MiB"), (3 << 40, "3,072.0 GiB")]
)
def test_size_text_uses_the_unit_that_fits(count: int, text: str) -> None:
    assert size_text(count) == text


def test_time_text_covers_the_whole_range_of_nanoseconds() -> None:
    assert [time_text(ns) for ns in (-(2**63), -1, 0, 2**63 - 1)] == [
        "1677-09-21 00:12:43.145224",
        "1969-12-31 23:59:59.999999",
        "1970-01-01 00:00:00",
        "2262-04-11 23:47:16.854775",
    ]


def test_report_lists_the_parts_of_columns(memory_store: ObjectStore) -> None:
    write(memory_store, "a", format="tlm3")
    report = inspect_extent(memory_store, "a")
    parts = {(each.column, each.part, each.path): each for each in report.parts}
    assert {"ts", "service", "attributes"} <= {each.column for each in report.parts}
    assert ("attributes", "shapes", None) in parts
    assert ("attributes", "directory", None) in parts
    leaves = [each for each in report.parts if each.path == "a"]
    assert sum(each.values for each in leaves if each.part != "dictionary") > 0
    assert sum(each.byte_size for each in report.parts) == report.byte_size - report.footer_bytes - 14
    assert "shapes" in shown(report)
