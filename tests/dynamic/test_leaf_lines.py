"""Show that texts at a path that are stored as templates come back, are found, and are refused if damaged."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import xxhash

import tidelake
from tests.dynamic.test_shredding import _cut, stored
from tidelake.dynamic.values import encode
from tidelake.format import leaf_lines, postings, segment_format, template_rows, templates
from tidelake.format.shredded import BlockPages, parse_directory
from tidelake.format.tlm3 import Tlm3Reader
from tidelake.kernels import template_loops

ROWS = 12_000
WORDS = ("disk", "queue", "node", "retry", "later", "full", "slow", "gone")
TABLES = ("lines", "plain")


def said(n: int) -> str:
    chance = random.Random(n)
    rare = " Überhitzt overheated" if n % 997 == 5 else ""
    first, second = chance.choice(WORDS), chance.choice(WORDS)
    host, took, id = chance.randrange(900), chance.randrange(10**6), chance.randrange(10**9)
    return f"{first} {second} of host-{host} took {took} ms id=a{id:09}{rare}"


def event(n: int) -> Any:
    """Return an event with a line, or with something else in its place."""
    others: list[Any] = [
        {"msg": n}, {"msg": True}, {"msg": None}, {}, {"msg": {"text": said(n)}}, {"msg": [said(n), "overheated 17"]},
        {"msg": 17.5}, {"msg": ""}, {"msg": "overheated"}, None,
    ]  # fmt: skip
    if n % 211 == 3:
        return others[n // 211 % len(others)]
    return {"msg": said(n), "n": n, "where": {"rack": f"r{n % 7}"}}


EVENTS = [event(n) for n in range(ROWS)]
VALUES = [None if each is None else encode(each) for each in EVENTS]
PATHS = ("msg", "msg.text", "n", "where.rack", "where", "nothing")


@pytest.fixture(scope="module")
def reader() -> Tlm3Reader:
    return stored(list(VALUES), block_rows=7_000)[0]


def line_leaves(reader: Tlm3Reader) -> list[int]:
    return list(reader.directory("v").lines)


def test_values_with_lines_come_back_byte_for_byte(reader: Tlm3Reader) -> None:
    assert len(line_leaves(reader)) == 1
    assert [each for block in (0, 1) for each in reader.read_block(block).column(0).to_pylist()] == VALUES


def test_a_leaf_that_the_first_block_lacks_comes_back() -> None:
    values: list[bytes | None] = [encode({"n": n} if n < 400 else {"n": n, "msg": said(n)}) for n in range(3_000)]
    reader, blocks = stored(values, block_rows=400)
    assert line_leaves(reader)
    assert [each for block in blocks for each in reader.read_block(block).column(0).to_pylist()] == values
    assert reader.text_rows(0, "v", "msg").texts[0][1].tolist() == [False] * 400  # type: ignore[union-attr]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("count", [0, 1, 40, 3_000])
def test_some_rows_have_at_a_path_what_they_have_among_all(reader: Tlm3Reader, path: str, count: int) -> None:
    chance = random.Random(count)
    for block in (0, 1):
        rows = reader.metadata().blocks[block].stats.rows
        places = np.array(sorted(chance.sample(range(rows), min(count, rows))), dtype=np.int64)
        (whole,), (some,) = (reader.read_paths(block, [("v", path)], given) for given in (None, places))
        wanted = whole.take(pa.array(places))
        for name in ("kind", "int", "real", "text", "other"):
            at, own = wanted.type.get_field_index(name), some.type.get_field_index(name)
            values = [None] * len(places) if at < 0 else wanted.field(at).to_pylist()
            assert values == ([None] * len(places) if own < 0 else some.field(own).to_pylist())


def test_postings_name_every_row_and_take_no_more_than_their_share(reader: Tlm3Reader) -> None:
    (leaf,) = line_leaves(reader)
    known = reader.text_rows(0, "v", "msg")
    assert known is not None
    ((of, having),) = known.texts
    assert of == leaf
    texts = [each["msg"] for each, has in zip(EVENTS, having.tolist(), strict=False) if has]
    for word in ("disk", "overheated", "nowhere"):
        found = reader.rows_with(0, ("v", leaf), [word])
        assert found is not None
        assert not (np.array([word in text.lower() for text in texts]) & ~found).any()
    assert known.others.sum() == sum(
        isinstance(each, dict) and not isinstance(each.get("msg"), str | None) for each in EVENTS[: len(having)]
    )
    sizes = {part.part: part.byte_size for part in reader.parts() if part.path == "msg" and part.codecs != ("bits",)}
    assert {"text", "templates", "words", "postings"} <= set(sizes)
    lines = sizes["text"] + sizes["templates"] + sizes["words"]
    assert 0 < sizes["postings"] <= 0.35 * lines


def test_parts_of_lines_that_lie_nowhere_are_refused(reader: Tlm3Reader) -> None:
    directory = reader.directory("v")
    good = dict(directory.lines)
    (leaf,), (place,) = good, good.values()

    def read(data: bytes, **known: int) -> Any:
        told = {"leaves": len(directory.leaves.nodes), "blocks": 2, "end": 10**9} | known
        return leaf_lines.parse_places(memoryview(data), **told)

    data = leaf_lines.places_bytes(good)
    assert read(data) == {leaf: place._replace(postings=list(place.postings))}
    assert read(b"") == {}
    for bad in (
        data[:3],
        data[:-1],
        leaf_lines.places_bytes({10**6: place}),
        leaf_lines.places_bytes({leaf: place._replace(words=place.words._replace(offset=-1))}),
        leaf_lines.places_bytes({leaf: place._replace(words=place.words._replace(texts=2**40))}),
        (2**31).to_bytes(4, "little") + data[4:],
    ):
        with pytest.raises(ValueError, match=r"line|part|number|page|place|integers"):
            read(bad)
    with pytest.raises(ValueError, match="without a place"):
        read(data, end=100)


def test_a_directory_with_lines_of_numbers_is_refused(reader: Tlm3Reader) -> None:
    place = reader._parts.shredded["v"]
    data = bytes(reader._store.get_range("x", place.offset, place.length))
    directory, size = reader.directory("v"), reader.metadata().byte_size
    (lines,) = directory.lines.values()
    numbers = int(np.flatnonzero(directory.leaves.kinds == 3)[0])
    known = data[: len(data) - len(leaf_lines.places_bytes(dict(directory.lines)))]
    assert not parse_directory(memoryview(known), block_count=2, end=size).lines
    with pytest.raises(ValueError, match="no texts"):
        parse_directory(memoryview(known + leaf_lines.places_bytes({numbers: lines})), block_count=2, end=size)


def test_damaged_pages_of_lines_are_refused_or_read_and_do_no_harm(reader: Tlm3Reader) -> None:
    directory, chance, refused = reader.directory("v"), random.Random(7), 0
    (leaf,) = directory.lines
    pages, rows = directory.blocks[1], reader.metadata().blocks[1].stats.rows
    piece = reader.metadata().blocks[1].pieces["v"]
    good = bytes(reader._store.get_range("x", piece.offset, piece.length))
    places = np.array([1, 77, 4_000])
    for _ in range(250):
        data, page = bytearray(good), pages[leaf]
        for _ in range(chance.choice((1, 3))):
            data[page.offset + chance.randrange(chance.choice((60, page.length)))] = chance.randrange(256)
        told = xxhash.xxh3_64_intdigest(bytes(data[page.offset : page.offset + page.length]))
        block = BlockPages(
            replace(directory, blocks=[{**pages, leaf: page._replace(checksum=told)}]), 0, rows,
            fetch=partial(_cut, bytes(data)), dictionary=partial(reader._leaf_dictionary, "v"),
            lines=lambda leaf: reader._line_dictionary(("v", leaf)),
        )  # fmt: skip
        for given, size in ((None, rows), (places, 3)):
            try:
                assert len(block.at_path("msg", given)) == size
            except (ValueError, pa.ArrowException):
                refused += 1
    assert refused > 100


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tidelake.Lake]:
    with tidelake.connect(tmp_path_factory.mktemp("lake")) as lake:
        rows = [{"ts": 1_700_000_000_000_000 + n, "id": n, "event": each} for n, each in enumerate(EVENTS)]
        hot = [{"ts": 1, "id": -1, "event": {"msg": "hot disk overheated"}}]
        columns = {"ts": "timestamp", "id": "long", "event": "dynamic"}
        for name, form in zip(TABLES, ("tlm3", "tlm2"), strict=True):
            table = lake.create_table(name, columns, time="ts", format=form, flush_age="off")
            table.append(rows)
            table.append(hot)
            table.delete("id >= 100 and id < 300")
        yield lake


ASKED = (
    "event.msg has 'overheated'",
    "event.msg has 'OVERHEATED' and id > 5000",
    "tostring(event.msg) has 'überhitzt overheated'",
    "event.msg has '17'",
    "event.msg has 'true'",
    "event.msg contains 'eated'",
    "event.msg contains_cs 'ms id=a0'",
    "event.msg contains '7.5'",
    "event.msg contains 'text'",
    "event.msg startswith 'disk node'",
    "event.msg startswith_cs 'Disk'",
    "event.msg == 'overheated'",
    "event.msg in ('overheated', '17', 'true')",
    "event.msg has 'overheated' or event.n == 4000",
    "event.msg has 'nowhere'",
    "not(event.msg has 'overheated') and id > 11000",
    "event.msg !contains 'ms' and id > 5",
    "event.msg.text has 'overheated'",
    "event.msg matches regex 'overheated$'",
    "event.msg endswith 'overheated'",
    "event.msg has 'overheated' and event.where.rack == 'r3'",
    f"event.msg == '{said(5)}'",
    f"event.msg has '{said(5).split()[2]}'",
    f"event.msg has '{said(9).split('=')[1]}'",
)


@pytest.mark.parametrize("asked", ASKED)
def test_answers_are_those_of_a_table_that_keeps_whole_values(lake: tidelake.Lake, asked: str) -> None:
    shown = "project id, m = tostring(event.msg), event.n, event | sort by id asc"
    for _ in range(2):  # with nothing in memory, and with what the first time left there
        found, wanted = (lake.kql(f"{name} | where {asked} | {shown}").to_arrow().to_pylist() for name in TABLES)
        assert found == wanted
        counts = [lake.kql(f"{name} | where {asked} | count").to_arrow().to_pylist() for name in TABLES]
        assert counts[0] == counts[1] == [{"Count": len(wanted)}]


@pytest.mark.parametrize(
    "asked",
    [
        "event['msg'] has 'overheated'",
        "event['msg'] contains 'eated'",
        "event['msg'] == 'overheated'",
        "event['msg'] in ('overheated', 'x', 17)",
        "event['msg'] matches regex 'overh.*d$'",
        "not (event['msg'] has 'disk')",
    ],
)
def test_scans_give_what_a_table_gives_that_keeps_whole_values(lake: tidelake.Lake, asked: str) -> None:
    found, wanted = (
        sorted(each["id"] for each in lake.table(name).scan(columns=["id"], where=asked).read_all().to_pylist())
        for name in TABLES
    )
    assert found == wanted
    assert wanted


def test_texts_of_other_rows_are_not_put_together(lake: tidelake.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    put_together = template_loops.put_together

    def counted(source: Any, size: int) -> Any:
        made.append(len(source.templates))
        return put_together(source, size)

    asked = "lines | where event.msg has 'overheated' | project id, m = tostring(event.msg) | sort by id asc"
    wanted = lake.kql(asked).to_arrow().to_pylist()
    lake.handle.footers._blocks.renew_after_fork()  # keeps whole columns no more
    monkeypatch.setattr(templates, "decode", None)  # texts of whole blocks cannot be put together
    monkeypatch.setattr(template_rows, "put_together", counted)
    assert lake.kql(asked).to_arrow().to_pylist() == wanted
    assert 0 < sum(made) < ROWS // 10


def test_inspection_names_the_parts_of_lines(lake: tidelake.Lake) -> None:
    table = lake.table("lines")
    extent = max(table.extents(), key=lambda each: each.byte_size)
    reader: Any = segment_format("tlm3").open_extent(table.handle.store, extent.key)
    found = {part.part: part for part in reader.parts() if part.path == "msg"}
    assert found["text"].codecs == ("templates",)
    assert found["templates"].values < 100
    assert found["postings"].values == found["text"].values > 10_000


def test_leaves_of_few_values_have_no_postings() -> None:
    values: list[bytes | None] = [encode({"msg": said(n)}) for n in range(postings.MIN_ROWS - 1)]
    reader, _ = stored(values, block_rows=65_536)
    (leaf,) = line_leaves(reader)
    assert not reader.keeps_postings(("v", leaf))
    assert reader.rows_with(0, ("v", leaf), ["disk"]) is None
    assert reader.rows_holding(0, ("v", leaf), []) is None
