"""See that few rows of many blocks are read at once, and are those that are read block by block without pruning."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tidelake
from tidelake.format import postings
from tidelake.model.predicate import Or, StringHas, text_holds
from tidelake.query.engines import small
from tidelake.query.session import run
from tidelake.scan import block_reading, glances
from tidelake.scan.candidates import blocks_without
from tidelake.scan.few_rows import FewRows
from tidelake.write import stager

ROWS, BLOCK_ROWS = 9_000, 300
START_US = 1_700_000_000_000_000
WORDS = ("mail", "billing", "index", "search")
KINDS = (
    "GET /api/v2/users/{n} 200 in {of}ms trace={n:x}",
    "connection from 10.0.{of}.7:{n} took worker-{of}",
    "cache miss for key user:{n}:profile shard={of} took {n} ms",
    "job {n} finished with {n:o} rows; queue {word}",
)


def said(n: int, chance: random.Random) -> dict[str, Any]:
    line = chance.choice(KINDS).format(n=chance.randrange(10**9), word=chance.choice(WORDS), of=n % 16)
    if n % 701 == 5:
        line = f"Overheated disk on rack {n % 40}, moved to {chance.choice(WORDS)}"
    event: dict[str, Any] = {"line": line, "level": ("INFO", "WARN")[n % 2], "deep": {"n": n if n % 3 else str(n)}}
    if n % 211 == 3:
        event["line"] = [n, None, {"overheated": n}][n // 211 % 3]  # no text
    row = {"ts": START_US + n, "n": n, "line": None if n % 97 == 11 else line, "event": event}
    return row | ({"host": f"h{n % 5}-{n // 4500}"} if n >= 3_000 else {})  # a column that came later


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    chance = random.Random(7)
    rows = [said(n, chance) for n in range(ROWS)]
    columns = {"ts": "timestamp", "n": "long", "line": "string", "event": "dynamic"}
    with pytest.MonkeyPatch.context() as patch, tidelake.connect(tmp_path_factory.mktemp("lake")) as lake:
        patch.setattr(stager, "BLOCK_ROWS", BLOCK_ROWS)
        patch.setattr(postings, "MIN_ROWS", 128)
        table = lake.create_table("said", columns, time="ts", format="tlm3", flush_age="off")
        for start in range(0, ROWS, 3_000):
            table.append(rows[start : start + 3_000])
            table.flush()
        table.delete("n >= 4000 and n < 5500")
        yield lake


ASKED = (
    "line has 'overheated' | project n, line, host",
    "line has 'overheated' and n > 2000 | project event, host, ts",
    "line contains 'erheated disk' | project line, level = tostring(event.level), deep = event.deep.n",
    "event.line has 'overheated' | project n, line, event",
    "event.line has 'overheated' | project said = tostring(event.line), level = tostring(event.level)",
    "event.line has 'overheated' or line has 'overheated' | project n, host",
    "line has 'overheated' | summarize c = count(), least = min(n) by host",
    "event.line has 'overheated' | count",
    "line has '200' | project n, line",
    "line has 'worker' | summarize c = count() by host",
    "line has 'nowhere' | project n",
    "line has 'overheated' | project n, line | take 2 | count",
)


@pytest.mark.parametrize("asked", ASKED)
def test_few_rows_of_many_blocks_are_those_of_all_rows(lake: Any, asked: str) -> None:
    text = f"said | where {asked}"
    wanted = sorted(map(repr, run(lake, text, language="kql", prune=False).to_arrow().to_pylist()))
    for _ in range(4):  # the third time from what is kept, the fourth with a statement that is
        assert sorted(map(repr, lake.kql(text).to_arrow().to_pylist())) == wanted


def test_rows_of_neighbouring_blocks_are_read_together_and_in_order(lake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    few = block_reading.Reading.few

    def counted(self: Any, rows: FewRows) -> Any:
        read.append(len(rows.parts))
        return few(self, rows)

    monkeypatch.setattr(block_reading.Reading, "few", counted)
    for _ in range(4):  # the last time from memory: what has to be fetched is not fetched ahead for nothing
        read.clear()
        found = lake.table("said").scan(["n"], "line has 'overheated'").read_all()["n"].to_pylist()
    assert found == sorted(n for n in range(ROWS) if n % 701 == 5 and n % 97 != 11 and not 4000 <= n < 5500)
    assert max(read) > 1
    assert max(read) <= glances.BLOCKS_AT_ONCE
    assert sum(read) <= len(found)


def test_some_of_few_rows_are_chosen_by_their_numbers() -> None:
    places = [np.array(each) for each in ([3, 9, 40], [0], [7, 8])]
    blocks: list[Any] = ["a", "b", "c"]
    rows = FewRows(None, tuple(zip(blocks, places, strict=True)))  # type: ignore[arg-type]
    assert len(rows) == 6
    for numbers in ([], [0], [5], [1, 3, 4], [0, 1, 2, 3, 4, 5]):
        kept = rows.only(np.array(numbers, dtype=np.int64))
        wanted = [(block, place) for block, own in zip(blocks, places, strict=True) for place in own.tolist()]
        found = [(block, place) for block, own in kept.parts for place in own.tolist()]
        assert found == [wanted[number] for number in numbers]


def test_a_search_that_was_made_before_is_answered_in_the_thread_that_asks(
    lake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered: list[int] = []
    rows_of = small.rows_of

    def counted(*given: Any) -> Any:
        found = rows_of(*given)
        answered.append(-1 if found is None else found[0].num_rows)
        return found

    monkeypatch.setattr(small, "rows_of", counted)
    monkeypatch.setattr(small, "ROWS", 1_000)
    for word, are_few in (("overheated", True), ("took", False)):
        text = f"said | where event.line has '{word}' | project n"
        rows = run(lake, text, language="kql", prune=False).to_arrow().num_rows
        answered.clear()
        for _ in range(5):
            assert lake.kql(text).to_arrow().num_rows == rows
        assert (rows < small.ROWS) is are_few
        assert answered[-1] == (rows if are_few else -1)
        assert are_few or len(answered) == 1  # of many rows it is tried once


def test_pages_of_lines_are_kept_once_they_were_read_again(lake: Any) -> None:
    blocks = lake.handle.footers._blocks
    blocks.renew_after_fork()
    asked = "said | where line has 'overheated' | project n, line"
    wanted = lake.kql(asked).to_arrow()
    for _ in range(2):
        assert lake.kql(asked).to_arrow().equals(wanted)
    kept = [name for _, _, name in blocks._kept]
    assert any(name.startswith("\0&") for name in kept)
    assert blocks.byte_size >= sum(array.nbytes for array, _, _ in blocks._kept.values())


def test_blocks_that_lack_a_word_are_known_at_once_and_rightly(lake: Any) -> None:
    table, left_out = lake.table("said"), 0
    chance = random.Random(11)
    for extent in table.extents():
        reader: Any = table.handle.footers.open(extent)
        blocks = list(range(extent.block_count))
        texts = [reader.read_block(block, ["line"]).column(0).to_pylist() for block in blocks]
        for _ in range(3):
            for block in blocks:
                reader.rows_with(block, "line", ["disk"])
        ids = [chance.choice([each for each in texts[block] if each and "user:" in each]) for block in blocks]
        for term in ("overheated", "disk on rack", "nowhere", *(re.findall(r"\d+", each)[0] for each in ids)):
            asked = StringHas("line", term)
            gone = blocks_without(reader, blocks, asked, {})
            assert not gone.intersection(n for n in blocks if any(text_holds(asked, each or "") for each in texts[n]))
            left_out += len(gone)
        nowhere = StringHas("line", "nowhere")
        assert blocks_without(reader, blocks, nowhere, {}) == frozenset(blocks)
        for where, elsewhere in (
            (Or((nowhere, StringHas("line", "disk"))), {}),
            (nowhere, {"line": (("_overflow", "line"),)}),  # where values may lie that are no texts
            (StringHas("host", "nowhere"), {}),
        ):
            assert blocks_without(reader, blocks, where, elsewhere) == frozenset()
    assert left_out > 20
