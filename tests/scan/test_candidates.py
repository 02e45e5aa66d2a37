"""Show that words find the rows that may hold them, in every block, and that answers are those of all rows."""

from __future__ import annotations

import random
import re
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tidelake
from tidelake.format import postings, segment_format, template_rows, templates
from tidelake.kernels import template_loops, token_rows
from tidelake.kernels.tokens import tokenize
from tidelake.model.predicate import StringContains
from tidelake.scan.candidates import candidates

WORDS = [f"{first}{second}" for first in ("ba", "ce", "di", "fo", "gu", "ha") for second in ("ro", "su", "ta", "ve")]
ROWS = 10_000


def lines() -> list[str | None]:
    chance = random.Random(9)
    made: list[str | None] = []
    for n in range(ROWS):
        words = chance.choices(WORDS, k=7)
        rare = f"Needle{n % 997}x" if n % 61 == 0 else "zebra" if n % 1500 == 7 else "plain"
        made.append(None if n % 401 == 0 else f"{' '.join(words)} {rare}, err={n % 5}")
    return made


LINES = lines()
TABLES = ("lines", "plain")


FILTERED = postings.Form(0, 64, digits=False, filter_bytes=4096)


@pytest.mark.parametrize("form", [*postings.FORMS, FILTERED])
def test_no_row_that_holds_a_token_is_left_out(form: postings.Form) -> None:
    block = pa.array(LINES, pa.utf8())
    page = memoryview(postings.encode(postings.Words.of(block.slice(3)), form))
    tokens = [set(tokenize(line or "")) for line in LINES[3:]]
    for asked in (["zebra"], ["needle0x"], ["baro", "zebra"], ["err"], ["nowhere"], ["needle61x", "plain"]):
        found = postings.rows_with(page, len(tokens), asked)
        holding = np.array([set(asked) <= each for each in tokens])
        assert not (holding & ~found).any()
    assert postings.rows_with(page, len(tokens), ["zebra"]).sum() < ROWS // 4
    assert not postings.rows_with(page, len(tokens), ["nowhere"]).any()
    if form.digits or form.filter_bytes:
        assert not any(postings.rows_with(page, len(tokens), [f"needle{n}z"]).any() for n in range(10))


def test_tokens_are_found_alike_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    block = pa.array([*LINES[:700], "é9ß ab", "", "A" * 40, "x"], pa.utf8()).slice(1)
    found = [each.tolist() for each in token_rows.listed_tokens(block)]
    monkeypatch.setattr(token_rows, "has_loops", lambda: False)
    assert [each.tolist() for each in token_rows.listed_tokens(block)] == found
    assert 0 < sum(found[2]) < len(found[2])


@pytest.mark.parametrize("form", [postings.FORMS[0], FILTERED])
def test_damaged_postings_are_refused_or_read_and_do_no_harm(form: postings.Form) -> None:
    chance, refused = random.Random(4), 0
    page = postings.encode(postings.Words.of(pa.array(LINES, pa.utf8())), form)
    for _ in range(800):
        damaged = bytearray(page)
        damaged[chance.randrange(chance.choice((30, len(damaged))))] = chance.randrange(256)
        cut = bytes(damaged[: chance.choice((len(damaged), chance.randrange(len(damaged))))])
        try:
            assert len(postings.rows_with(memoryview(cut), ROWS, ["zebra", "needle61x"])) == ROWS
        except ValueError:
            refused += 1
    assert refused > 300


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with tidelake.connect(tmp_path_factory.mktemp("lake")) as lake:
        columns = {"ts": "timestamp", "n": "long", "line": "string"}
        rows = [{"ts": 1_700_000_000_000_000 + n, "n": n, "line": line} for n, line in enumerate(LINES)]
        table = lake.create_table("lines", columns, time="ts", format="tlm3", flush_age="off")
        table.append(rows[:5000])
        table.append(rows[5000:])
        table.append([{"ts": 1, "n": -1, "line": "hot zebra"}])
        lake.create_table("plain", columns, time="ts", format="tlm2", flush_age="off").append(
            [{"ts": 1, "n": -1, "line": "hot zebra"}, *rows]
        )
        table.delete("n >= 100 and n < 300")
        lake.table("plain").delete("n >= 100 and n < 300")
        logs = lake.create_table("logs", columns, time="ts", format="tlm3", flush_age="off")
        said = ["rare 7", *(f"took {n * 7919 % 10007} ms on node{n % 40}" for n in range(2000))]
        logs.append([{"ts": 1_700_000_000_000_000 + n, "n": n, "line": line} for n, line in enumerate(said)])
        traced = [{"ts": 1_700_000_000_000_000 + n, "n": n, "line": line} for n, line in enumerate(TRACED)]
        for name, form in (("traced", "tlm3"), ("traced_plain", "tlm2")):
            lake.create_table(name, columns, time="ts", format=form, flush_age="off").append(traced)
        yield lake


def ids() -> list[str]:
    chance = random.Random(5)
    made = [(chance.choice(WORDS), chance.randrange(2**62), chance.randrange(2**60)) for _ in range(ROWS)]
    return [f"GET /{word} trace={one} span={other:x} took {n % 900} ms" for n, (word, one, other) in enumerate(made)]


TRACED = ids()
ASKED = (
    "line has 'zebra'",
    "line has 'ZEBRA' and n > 3000",
    "line has 'needle0x'",
    "line contains ' zebra, err'",
    "line contains 'ebra'",
    "line contains 'EBR'",
    "line contains 'eedle1'",
    "line contains 'eedl' and n > 500",
    "line contains_cs 'eedle' or line contains 'ebra, er'",
    "line has 'baro zebra' or line has 'needle61x'",
    "not(line has 'zebra') and line has 'needle122x'",
    "line matches regex 'plain|zebra, err=[12]' and line has 'zebra'",
    "line has 'nowhere'",
    "line startswith 'baro baro '",
)


@pytest.mark.parametrize("asked", ASKED)
def test_answers_are_those_of_a_table_without_postings(lake: Any, asked: str) -> None:
    found, wanted = (
        lake.kql(f"{name} | where {asked} | project n, line | sort by n asc").to_arrow().to_pylist() for name in TABLES
    )
    assert found == wanted


@pytest.mark.parametrize("at", [0, 4_000, ROWS - 1, None])
def test_ids_are_found_without_the_texts_of_others(lake: Any, at: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    line = f"trace={2**60 + 1} span={2**55 + 1:x} took" if at is None else TRACED[at]
    trace, span = re.search(r"trace=(\d+) span=(\w+)", line).groups()  # type: ignore[union-attr]
    asked = (f"line has '{trace}'", f"line has '{span.upper()}'", f"line contains ' trace={trace} span={span} '")
    wanted = [lake.kql(f"traced_plain | where {each} | sort by n asc").to_arrow().to_pylist() for each in asked]
    assert [len(rows) for rows in wanted] == [at is not None] * 3
    lake.handle.footers._blocks.renew_after_fork()
    monkeypatch.setattr(templates, "decode", None)  # texts of whole blocks cannot be put together
    found = [lake.kql(f"traced | where {each} | sort by n asc").to_arrow().to_pylist() for each in asked]
    assert found == wanted


def test_a_filter_of_ids_takes_no_more_than_its_share(lake: Any) -> None:
    table = lake.table("traced")
    (extent,) = table.extents()
    reader: Any = segment_format("tlm3").open_extent(table.handle.store, extent.key)
    told = reader.read_postings(0, "line")
    assert told.filter is not None
    assert not told.digits
    sizes = {part.part: part.byte_size for part in reader.parts() if part.column == "line"}
    assert 0 < sizes["postings"] <= 0.35 * (sum(sizes.values()) - sizes["postings"])
    chance = random.Random(6)
    others = [str(chance.randrange(2**62)) for _ in range(300)]
    assert sum(bool(reader.rows_with(0, "line", [each]).any()) for each in others) < 75


def test_texts_of_other_rows_are_not_put_together(lake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    put_together = template_loops.put_together

    def counted(source: Any, size: int) -> Any:
        made.append(len(source.templates))
        return put_together(source, size)

    asked = "lines | where line has 'zebra' and line has 'err' | project n, line"
    wanted = lake.kql(asked).to_arrow().to_pylist()
    lake.handle.footers._blocks.renew_after_fork()  # keeps whole columns no more
    monkeypatch.setattr(templates, "decode", None)  # texts of whole blocks cannot be put together
    monkeypatch.setattr(template_rows, "put_together", counted)
    assert lake.kql(asked).to_arrow().to_pylist() == wanted
    assert 0 < sum(made) < ROWS // 10


def test_a_part_of_a_word_finds_the_rows_that_hold_it(lake: Any) -> None:
    table, found = lake.table("lines"), 0
    for extent in table.extents():
        reader: Any = segment_format(extent.format).open_extent(table.handle.store, extent.key)
        for block in range(extent.block_count):
            rows = candidates(reader, block, StringContains("line", "EBR"), {})
            texts = reader.read_block(block, ["line"]).column(0).to_pylist()
            if rows is not None:
                assert rows.tolist() == ["ebr" in (text or "") for text in texts]
                found += int(rows.sum())
    assert 0 < found < ROWS // 100


@pytest.mark.parametrize(
    "text",
    [
        "select message_template(line) as t, count(*) as n from {table} group by 1 order by 2 desc, 1",
        "select template_id(line) as t, count(*) as n, min(n) as first from {table} where n > 70 group by 1 order by 1",
        "select n, message_template(line) as t from {table} where line ilike '%needle61x%' order by n",
        "select count(distinct message_template(line)) as t, max(length(line)) as long from {table}",
    ],
)
def test_templates_are_those_of_the_texts(lake: Any, text: str) -> None:
    found, wanted = (lake.sql(text.format(table=name), engine="local").to_arrow().to_pylist() for name in TABLES)
    assert found == wanted
    assert len(found) > 0


def test_lines_are_counted_by_template_without_their_texts(lake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = "logs | summarize n = count() by t = message_template(line) | sort by n asc"
    wanted = [{"t": "rare <*>", "n": 1}, {"t": "took <*> ms on <*>", "n": 2000}]
    assert lake.kql(asked).to_arrow().select(["t", "n"]).to_pylist() == wanted
    monkeypatch.setattr(templates, "decode", None)  # texts cannot be put together
    assert lake.kql(asked).to_arrow().select(["t", "n"]).to_pylist() == wanted
