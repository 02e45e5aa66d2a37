"""Feed readers damaged extents by the thousand: an error or the right rows, and never much memory.

Trials run in processes of their own, so that a crash is a failed test and memory is measured from a clean start.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import get_context
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pytest
import xxhash

from tests.support import foreign
from tests.support.hostile import EXTREMES, copy_over, damaged, flip_bits, overwrite, write_extreme
from tests.support.rows import KEY, Row, batch_of, rows_of, write
from tidelake.errors import CorruptError, CorruptExtent, SchemaError
from tidelake.format import SegmentFormat, WriteOptions, postings, segment_format
from tidelake.format.frame import packed_json, unpacked_footer
from tidelake.kernels.tokens import Run
from tidelake.model.predicate import And, Equals, IsNull, Not, Or, Predicate, Range, StringContains, TimeRange
from tidelake.model.schema import Schema
from tidelake.objects import ObjectStore, open_store
from tidelake.scan.path_columns import ReadsPaths
from tidelake.scan.template_answers import judged

MAX_EXTRA_BYTES = 64 << 20

SCHEMA = Schema.of(
    {"ts": "timestamp", "msg": "string", "n": "int", "real": "real", "ok": "bool", "d": "dynamic", "v": "vector(2)"}
)
LINES = Schema.of({"ts": "timestamp", "line": "string", "said": "string", "day": "int", "due": "int", "host": "string"})
ODD_VALUES: tuple[Any, ...] = (*EXTREMES, *(-number for number in EXTREMES), None, True, 1.5, "", "x", [], {}, "int")
ASKED: Predicate = Or(
    (
        And((TimeRange("ts", 0, 10**6), Equals("n", 3), StringContains("msg", "timeout"))),
        Not(IsNull("d")),
        Range("real", 0.5),
    )
)


@dataclass(frozen=True, slots=True)
class Target:
    """A valid extent to damage; what is checksummed must not give wrong rows."""

    format: str
    make: Callable[[], bytes]
    checksummed: bool = True
    damage: Callable[[bytes, random.Random], bytes] = damaged


@dataclass(slots=True)
class Report:
    """What came of some trials."""

    outcomes: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    extra_rss: int = 0
    extra_arrow: int = 0

    def __add__(self, other: Report) -> Report:
        return Report(
            self.outcomes + other.outcomes,
            self.faults + other.faults,
            max(self.extra_rss, other.extra_rss),
            max(self.extra_arrow, other.extra_arrow),
        )


def sample_rows(count: int) -> list[Row]:
    return [
        {
            "ts": None if at == 5 else at * 1000,
            "msg": f"request {at} timeout" if at % 3 else None,
            "n": at,
            "real": at / 4,
            "ok": at % 2 == 0,
            "d": (b"\xa1\x61a\x01", b"\xa2\x61a\x61x\x61b\xa1\x61c\xf4", b"\x80")[at % 3] if at % 4 else None,
            "v": (float(at), 0.5) if at % 5 else None,
        }
        for at in range(count)
    ]


def ours(format: str, *, rows: int = 24, block_rows: int = 12, compression: str | None = "zstd") -> bytes:
    store = open_store("memory://")
    options = WriteOptions(block_rows=block_rows, compression=compression)
    write(store, segment_format(format), SCHEMA, [batch_of(sample_rows(rows), SCHEMA)], options=options)
    return bytes(store.get(KEY))


def lines() -> bytes:
    """Make an extent of lines by their templates with postings, of a dictionary and of differences."""
    rows: list[Row] = [
        {
            "ts": at * 1000,
            "line": f"job {at * 7919 % 100_003} took {at % 17} ms on node{at % 9}" if at % 50 else f"Disk {at} is hot",
            "said": f"job {at * 7919 % 10007} of {('mail', 'index')[at % 2]} took {at % 9} ms on rack{at % 7}",
            "day": at * at * 7919 % 2503,
            "due": at * at * 7919 % 2503 + at * 31 % 30,
            "host": f"host-{at * at % 11}.example.org",
        }
        for at in range(1_200)
    ]
    store = open_store("memory://")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(postings, "MIN_ROWS", 256)
        patched.setattr(postings, "SHARE", 5.0)
        write(store, segment_format("tlm3"), LINES, [batch_of(rows, LINES)], options=WriteOptions(block_rows=700))
    good = bytes(store.get(KEY))
    shared = _opened(good)[0][-1]["extent"]
    assert {name: held["every_word"] for name, held in shared["templates"].items()} == {"line": False, "said": True}
    assert (list(shared["postings"]), list(shared["dictionaries"])) == (["line", "said"], ["host"])
    assert len(shared["differences"]) == 1
    return good


def resealed(good: bytes, chance: random.Random) -> bytes:
    """Change what the footer of one of our extents says, and seal it as if we had."""
    entries, body = _opened(good)
    for _ in range(chance.choice((1, 1, 2))):
        _spoil(entries, chance)
    return _sealed(entries, body, good[-5:])


def resummed(good: bytes, chance: random.Random) -> bytes:
    """Change the bytes of a column of one of our extents, and give them the checksum that they need."""
    entries, body = _opened(good)
    places = [place for entry in entries for place in entry["tide"].values()]
    shared = entries[-1]["extent"]
    places += [*shared.get("dictionaries", {}).values(), *shared.get("shredded", {}).values()]
    for held in shared.get("templates", {}).values():
        places += [held, held["words"]]
    places += [place for listed in shared.get("postings", {}).values() for place in listed]
    for place in chance.sample(places, chance.choice((1, 1, 2))):
        start, end = place["at"], place["at"] + place["len"]
        changed = chance.choice((flip_bits, overwrite, write_extreme, copy_over))(body[start:end], chance)
        body = body[:start] + changed + body[end:]
        place["sum"] = xxhash.xxh3_64_hexdigest(changed)
    for name, held in shared.get("templates", {}).items():
        for entry, head in zip(entries, held["heads"], strict=True):
            start = entry["tide"][name]["at"]
            head[1] = xxhash.xxh3_64_hexdigest(body[start : start + head[0]])
    return _sealed(entries, body, good[-5:])


def _opened(good: bytes) -> tuple[list[dict[str, Any]], bytes]:
    length = int.from_bytes(good[-9:-5], "little")
    stored = good[-9 - length : -9]
    if good[4] == 3:
        return json.loads(unpacked_footer(stored)), good[: -9 - length]
    entries = json.loads(stored)
    entries[-1].pop("sum")
    return entries, good[: -9 - length]


def _sealed(entries: list[dict[str, Any]], body: bytes, magic: bytes) -> bytes:
    if magic[4] == 3:
        stats = packed_json(json.dumps(entries).encode())
        return body + stats + len(stats).to_bytes(4, "little") + magic
    open_end = json.dumps(entries, separators=(",", ":")).encode()[:-2]
    stats = open_end + b',"sum":"' + xxhash.xxh3_64_hexdigest(open_end).encode() + b'"}]'
    return body + stats + len(stats).to_bytes(4, "little") + magic


def _spoil(shape: Any, chance: random.Random) -> None:
    """Walk into a JSON value at random, and change or remove something there."""
    while True:
        keys = list(shape) if isinstance(shape, dict) else list(range(len(shape)))
        if not keys:
            return
        key = chance.choice(keys)
        if not isinstance(shape[key], dict | list) or not shape[key] or chance.random() < 0.1:
            break
        shape = shape[key]
    if chance.random() < 0.15:
        del shape[key]
    elif isinstance(shape[key], int) and chance.random() < 0.5:
        shape[key] += chance.choice((-64, -8, -1, 1, 8, 64))
    else:
        shape[key] = chance.choice(ODD_VALUES)


TARGETS = {
    "tlm": Target("tlm", lambda: ours("tlm")),
    "tlm plain": Target("tlm", lambda: ours("tlm", compression=None)),
    "tlm long": Target("tlm", lambda: ours("tlm", rows=3000, block_rows=3000, compression=None)),
    "tlm3": Target("tlm3", lambda: ours("tlm3", rows=200, block_rows=120)),
    "tlm3 lines": Target("tlm3", lines),
    "parquet": Target("parquet", lambda: ours("parquet")),
    "parquet plain": Target("parquet", lambda: ours("parquet", compression=None)),
}
FOREIGN = {
    "foreign v1": Target("tlm", lambda: foreign.frame_v1(foreign.sample_batches()), checksummed=False),
    "foreign v2": Target("tlm", lambda: foreign.frame_v2(foreign.sample_batches()), checksummed=False),
    "foreign zstd": Target("tlm", lambda: foreign.frame_v2(foreign.sample_batches(), "zstd"), checksummed=False),
    "foreign lz4": Target("tlm", lambda: foreign.frame_v1(foreign.sample_batches(), "lz4"), checksummed=False),
}
EVEN = Schema.of({"ts": "timestamp", "s": "string"})


def even() -> bytes:
    """Make an extent that tells how long each of its texts is."""
    store = open_store("memory://")
    write(store, segment_format("tlm"), EVEN, [batch_of([{"ts": at, "s": f"{at:04}"} for at in range(1_100)], EVEN)])
    assert b'"width":4' in bytes(store.get(KEY))
    return bytes(store.get(KEY))


ENEMY = {
    "width": Target("tlm", even, checksummed=False, damage=resealed),
    "footer": Target("tlm", lambda: ours("tlm"), checksummed=False, damage=resealed),
    "bytes": Target("tlm", lambda: ours("tlm", compression=None), checksummed=False, damage=resummed),
    "third footer": Target("tlm3", lambda: ours("tlm3"), checksummed=False, damage=resealed),
    "third bytes": Target("tlm3", lambda: ours("tlm3", rows=200, block_rows=120), checksummed=False, damage=resummed),
    "lines footer": Target("tlm3", lines, checksummed=False, damage=resealed),
    "lines bytes": Target("tlm3", lines, checksummed=False, damage=resummed),
    "zstd bytes": Target("tlm", lambda: ours("tlm"), checksummed=False, damage=resummed),
}
ALL_TARGETS = TARGETS | FOREIGN | ENEMY


PATHS = [("d", path) for path in ("a", "b", "b.c", "nothing")]


def read(format: SegmentFormat, store: ObjectStore) -> list[pa.RecordBatch]:
    """Do all that can be done with an extent."""
    reader = format.open_extent(store, KEY)
    metadata = reader.metadata()
    surviving = reader.pruned_blocks(ASKED)
    assert set(surviving) <= set(range(len(metadata.blocks)))
    batches = []
    for number, block in enumerate(metadata.blocks):
        assert reader.read_block(number, []).num_rows == block.stats.rows
        batches.append(reader.read_block(number))
        if isinstance(reader, ReadsPaths) and "d" in metadata.schema:
            assert [len(each) for each in reader.read_paths(number, PATHS)] == [block.stats.rows] * len(PATHS)
        if hasattr(reader, "lines"):
            look_for_words(reader, number, block.stats.rows)
        assert batches[-1].num_rows == block.stats.rows
    return batches


def look_for_words(reader: Any, number: int, rows: int) -> None:
    """Ask an extent of lines for words, parts, templates and the texts of few rows."""
    places = np.arange(0, rows, 97)
    runs = (Run("rack3", True, True), Run("ode", False, False), Run("17", True, True))
    for name in ("line", "said"):
        lines = reader.lines(name) if name in reader.metadata().schema else None
        if lines is None:
            continue
        assert len(reader.read_lines(name, [(number, places)])) == len(places)
        tokens = ["took", "rack3"]
        for found in (reader.rows_with(number, name, tokens), reader.rows_holding(number, name, runs)):
            assert found is None or len(found) == rows
        found = reader.read_templates(number, name)
        assert found is None or len(found) == rows
        known = judged(StringContains(name, "rack 3"), lines)
        assert len(reader.row_templates(number, name).rows(known[1])) == rows


def tried(target: Target, data: bytes, store: ObjectStore, wanted: Sequence[pa.RecordBatch]) -> str:
    """Return what came of reading some bytes."""
    store.put(KEY, data)
    try:
        batches = read(segment_format(target.format), store)
    except (CorruptError, SchemaError):
        return "refused"
    except BaseException as error:
        return f"fault: {error!r}"
    if not target.checksummed:
        for batch in batches:
            with suppress(UnicodeDecodeError):  # an enemy's text may be no text
                rows_of(batch)  # touch every byte
        return "read"
    same = len(batches) == len(wanted) and all(a.equals(b) for a, b in zip(batches, wanted, strict=True))
    return "read" if same else "fault: wrong rows"


def run_trials(name: str, good: bytes, seed: int, trials: int) -> Report:
    """Damage one target again and again; called in a process of its own."""
    target, store, report = ALL_TARGETS[name], open_store("memory://"), Report()
    store.put(KEY, good)
    wanted = read(segment_format(target.format), store)
    process, pool = psutil.Process(), pa.default_memory_pool()
    start_rss, start_arrow = process.memory_info().rss, pool.bytes_allocated()
    for trial in range(trials):
        outcome = tried(target, target.damage(good, random.Random(f"{name} {seed} {trial}")), store, wanted)
        report.outcomes[outcome.partition(":")[0]] += 1
        if outcome.startswith("fault"):
            report.faults.append(f"{name} {seed} {trial} {outcome}")
        report.extra_rss = max(report.extra_rss, process.memory_info().rss - start_rss)
    report.extra_arrow = pool.max_memory() - start_arrow
    return report


def run_in_processes(targets: Mapping[str, Target], *, trials: int) -> Report:
    """Share the trials on some targets out to processes."""
    share = -(-trials // (len(targets) * 2))
    with ProcessPoolExecutor(2, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        work = [
            pool.submit(run_trials, name, target.make(), seed, share)
            for name, target in targets.items()
            for seed in range(2)
        ]
        return sum((each.result() for each in work), Report())


@pytest.mark.parametrize("times", [1, pytest.param(20, marks=pytest.mark.torture)])
@pytest.mark.parametrize(
    ("targets", "trials"),
    [
        pytest.param(TARGETS, 2_000, id="ours give an error or the right rows"),
        pytest.param(FOREIGN, 500, id="without checksums"),
        pytest.param(ENEMY, 400, id="sealed by an enemy"),
    ],
)
def test_damaged_extents_never_harm_a_reader(targets: Mapping[str, Target], trials: int, times: int) -> None:
    trials *= times
    report = run_in_processes(targets, trials=trials)
    assert report.faults == []
    assert sum(report.outcomes.values()) >= trials
    assert min(report.outcomes["read"], report.outcomes["refused"]) > trials / 40
    assert max(report.extra_rss, report.extra_arrow) < MAX_EXTRA_BYTES


@pytest.mark.parametrize(
    ("name", "outcomes"), [("tlm", {"read", "refused"}), ("tlm3", {"refused"}), ("parquet", {"refused"})]
)
def test_damage_all_over_an_extent_is_found_or_harmless(
    memory_store: ObjectStore, name: str, outcomes: set[str]
) -> None:
    good = TARGETS[name].make()
    memory_store.put(KEY, good)
    wanted = read(segment_format(name), memory_store)
    flipped = (good[:at] + bytes([good[at] ^ 0x10]) + good[at + 1 :] for at in range(0, len(good), 11))
    assert {tried(TARGETS[name], data, memory_store, wanted) for data in flipped} == outcomes


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda good: b"", "wrong magic b''"),
        (lambda good: b"K", "wrong magic b'K'"),
        (lambda good: b"KYMA\x02", "no closing magic"),
        (lambda good: b"KYMA\x01", "not an arrow file"),
        (lambda good: b"KYMA\x03" + good[5:-5] + b"KYMA\x03", "wrong magic b'KYMA\\x03'"),
        (lambda good: b"PNSV\x02" + good[5:-5] + b"PNSV\x02", "wrong magic b'PNSV\\x02'"),
        (lambda good: good[:-1], "no closing magic"),
        (lambda good: good[:-9] + b"\xff\xff\xff\xff" + good[-5:], "statistics of 4294967295 bytes"),
        (lambda good: good[:-9] + b"\x02\0\0\0" + good[-5:], "JSON"),
        (lambda good: good[:-9] + b"{}" + b"\x02\0\0\0" + good[-5:], "not a list"),
        (lambda good: good.replace(b'"row_count"', b'"row_c0unt"'), "checksum mismatch in the footer"),
        (lambda good: good.replace(b'"sum"', b'"sun"'), "checksum mismatch in the footer"),
        (lambda good: b"X" + good[1:], "opening magic"),
    ],
)
def test_corrupt_extent_names_the_object_and_the_reason(
    memory_store: ObjectStore, spoil: Callable[[bytes], bytes], reason: str
) -> None:
    memory_store.put(KEY, spoil(ours("tlm")))
    with pytest.raises(CorruptExtent, match=re.escape(reason)) as caught:
        segment_format("tlm").open_extent(memory_store, KEY)
    assert (caught.value.kind, caught.value.facts["object"]) == ("corrupt_extent", KEY)


def _packed(head: bytes, frame: bytes) -> bytes:
    return head + frame + xxhash.xxh3_64_intdigest(head + frame).to_bytes(8, "little")


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda footer: footer[:9] + bytes([footer[9] ^ 1]) + footer[10:], "checksum mismatch in the footer"),
        (lambda footer: b"\x03" + footer[1:], "checksum mismatch in the footer"),
        (lambda footer: b"\x02", "checksum mismatch in the footer"),
        (lambda footer: _packed(b"\x02" + (2**31).to_bytes(4, "little"), footer[5:-8]), "a footer of 2147483648 bytes"),
        (lambda footer: _packed(b"\x02\x09\0\0\0", footer[5:-8]), "the footer does not decompress"),
        (lambda footer: _packed(footer[:5], b"no frame"), "the footer does not decompress"),
        (lambda footer: _packed(footer[:3] + b"\x01\0", footer[5:-8]), "the footer does not decompress"),
        (lambda footer: packed_json(b"{}"), "not a list"),
    ],
)
def test_a_footer_that_lies_about_what_it_holds_is_corrupt(
    memory_store: ObjectStore, spoil: Callable[[bytes], bytes], reason: str
) -> None:
    good = ours("tlm3")
    length = int.from_bytes(good[-9:-5], "little")
    footer = spoil(good[-9 - length : -9])
    memory_store.put(KEY, good[: -9 - length] + footer + len(footer).to_bytes(4, "little") + good[-5:])
    with pytest.raises(CorruptExtent, match=re.escape(reason)):
        segment_format("tlm3").open_extent(memory_store, KEY)


@pytest.mark.parametrize("name", ["msg", "d"])
def test_filters_take_a_tenth_of_what_they_spare_at_most(memory_store: ObjectStore, name: str) -> None:
    for rows in (40, 4_000):
        memory_store.put(KEY, ours("tlm3", rows=rows, block_rows=2_000))
        for block in segment_format("tlm3").open_extent(memory_store, KEY).metadata().blocks:
            known = block.stats.columns[name]
            held = [each.to_text() for each in (known.values, known.terms, known.grams, known.leaves) if each]
            assert sum(len(text) * 3 // 4 for text in held) <= block.pieces[name].length / 10
