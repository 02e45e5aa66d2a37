"""Show that texts split into templates come back to the byte, with a compiler and without, and survive damage."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.golden.make import tide_v3_lines_rows, tide_v3_words_rows
from tests.support.rows import KEY, batch_of, write
from tests.support.strategies import examples
from tidelake.format import WriteOptions, codecs, postings, segment_format, template_search, templates
from tidelake.kernels import plain_templates, template_loops
from tidelake.kernels.plain_templates import message_template
from tidelake.kernels.tokens import tokenize
from tidelake.model.schema import Column, DataType, Schema
from tidelake.objects import open_store

PIECES = st.sampled_from(["job", " ", "0", "007", "42", "é", ":", "a1", "99999999999999999999", "9223372036854775807",
                          "<*>", "x9y", "\n", "-", "ms", "12ms"])  # fmt: skip
LINES = st.lists(st.lists(PIECES, max_size=6).map("".join) | st.text(max_size=8), min_size=1, max_size=12)
LOG = [row["line"] for row in tide_v3_lines_rows()]


def encoded(blocks: Sequence[pa.Array], *, every_word: bool) -> tuple[list[bytes], templates.Dictionary]:
    encoding = templates._Encoding(every_word)
    pages = []
    for block in blocks:
        made = encoding.block(block.drop_null())
        assert made is not None
        pages.append(templates._column_page(block, made)[0])
    return pages, templates.Dictionary(encoding.templates.texts(), encoding.words.texts(), every_word=every_word)


@pytest.mark.parametrize("every_word", [False, True])
@pytest.mark.parametrize("plainly", [False, True])
def test_texts_come_back(every_word: bool, plainly: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if plainly:
        monkeypatch.setattr(template_loops, "has_loops", lambda: False)

    @examples(60)
    @given(LINES, st.sampled_from([1, 3, 200]), st.data())
    def check(lines: list[str], times: int, data: st.DataObject) -> None:
        texts = [None if n % 11 == 7 else f"{line} {n}" * (n % 2) + line for n, line in enumerate(lines * times)]
        blocks = [pa.array(texts, pa.utf8()), pa.array(texts[::-1], pa.utf8()).slice(1)]
        pages, dictionary = encoded(blocks, every_word=every_word)
        wanted = np.array([data.draw(st.booleans())] * len(texts)) | (np.arange(len(texts)) % 5 == 0)
        for page, block in zip(pages, blocks, strict=True):
            assert templates.decode_column(memoryview(page), len(block), dictionary).equals(block)
        some = templates.decode_column(memoryview(pages[0]), len(texts), dictionary, wanted)
        assert some.filter(pa.array(wanted)).equals(blocks[0].filter(pa.array(wanted)))

    check()


def test_what_is_written_does_not_depend_on_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template_loops, "STRETCH_BYTES", 500)
    blocks = [pa.array(LOG[at : at + 200], pa.utf8()) for at in (0, 200, 400)]
    compiled = [encoded(blocks, every_word=each)[0] for each in (False, True)]
    monkeypatch.setattr(template_loops, "has_loops", lambda: False)
    assert [encoded(blocks, every_word=each)[0] for each in (False, True)] == compiled


def test_variables_that_are_numbers_are_read_as_such_either_way(monkeypatch: pytest.MonkeyPatch) -> None:
    variables = [[b"1", b"22"], [b"01", b"22"], [b"1", b"022"], [b"a1", b"a2"], [b"a1", b"b2"], [b"7ms", b"0ms"]]
    variables += [[b"9223372036854775807"], [b"9223372036854775808"], [b"1a2"], [b"12345678901234567890"], [b"abc"]]
    values = [value for each in variables for value in each]
    letters = np.frombuffer(b"".join(values), np.uint8)
    lengths = np.array(list(map(len, values)))
    bounds = np.concatenate([[0], np.cumsum([len(each) for each in variables])])
    found = template_loops.as_numbers(letters, np.cumsum(lengths) - lengths, lengths, bounds)
    number = plain_templates.Number
    assert found[1] == [number(0, 0, 0), number(0, 0, 2), None, number(1, 0, 0), None, number(0, 2, 0),
                        number(0, 0, 0), None, None, None, None]  # fmt: skip
    plain = plain_templates.as_numbers(letters, np.cumsum(lengths) - lengths, lengths, bounds)
    assert plain[1] == found[1]
    read = [at for at, form in enumerate(found[1]) if form is not None]
    for at in read:
        assert plain[0][bounds[at] : bounds[at + 1]].tolist() == found[0][bounds[at] : bounds[at + 1]].tolist()


def test_an_extent_of_lines_is_smaller_by_templates_and_gives_them_without_the_texts() -> None:
    schema = Schema((Column(1, "line", DataType("string")), Column(2, "id", DataType("string"))))
    rows = [{"line": line, "id": f"{n * 2**40 % 104729:x}"} for n, line in enumerate(LOG)]
    store = open_store("memory://")
    write(store, segment_format("tlm3"), schema, [batch_of(rows, schema)])
    reader: Any = segment_format("tlm3").open_extent(store, KEY)
    parts = {(part.column, part.part): part for part in reader.parts()}
    assert ("line", "templates") in parts
    assert ("id", "templates") not in parts
    stored = sum(part.byte_size for (name, _), part in parts.items() if name == "line")
    assert stored < 0.8 * len(codecs.encode_column(pa.array(LOG)))
    assert reader.read_block(0, ["line"]).column(0).to_pylist() == LOG
    found = reader.read_templates(0, "line")
    assert found.to_pylist() == [None if line is None else message_template(line) for line in LOG]
    assert reader.read_templates(0, "id") is None


def test_texts_that_share_nothing_are_not_split() -> None:
    chance = random.Random(3)
    texts = pa.array(["".join(chance.choices("abcdefghijklmnop", k=30)) for _ in range(2000)])
    with ThreadPoolExecutor(1) as pool:
        assert templates.templated([texts], None, pool) is None
        assert templates.templated([pa.array(LOG * 2)], 10.0, pool) is None
        assert templates.templated([pa.array(LOG * 2)], None, pool) is not None


@pytest.mark.parametrize("every_word", [False, True])
def test_the_words_of_a_block_hold_the_tokens_of_its_rows_and_no_others(every_word: bool) -> None:
    encoding = templates._Encoding(every_word)
    for texts in (LOG[:300], LOG[300:], [None, "Same 17 same SAME", "x", ""] * 200, [None, None]):
        block = pa.array(texts, pa.utf8())
        made = encoding.block(block.drop_null())
        assert made is not None
        words = encoding.words_of(block, made)
        assert words.counts.sum() == len(words.rows)  # none is in too many rows to be listed
        found: list[set[str]] = [set() for _ in texts]
        for number, row in zip(words.numbers.tolist(), words.rows.tolist(), strict=True):
            found[row] |= set(tokenize(words.texts[number].as_py().decode("latin-1")))
        for span, row in zip(words.spans.to_pylist(), words.span_rows.tolist(), strict=True):
            found[row] |= set(tokenize(span.decode()))
        assert found == [set(tokenize(text or "")) for text in texts]
        page = memoryview(postings.encode(words, postings.Form(0, 64, True)))
        for token in {token for tokens in found for token in tokens}:
            holding = np.array([token in tokens for tokens in found])
            assert not (holding & ~postings.rows_with(page, len(texts), [token])).any()


def test_statistics_are_those_of_the_texts_themselves() -> None:
    schema = Schema(tuple(Column(at, name, DataType("string")) for at, name in enumerate(("line", "host", "path"), 1)))
    rows: list[dict[str, str | None]] = [
        {"line": line, "host": f"node-{n * n % 7}.eu" if n % 5 else None, "path": f"/a/{n * n % 1201}"}
        for n, line in enumerate(LOG)
    ]
    store, options = open_store("memory://"), WriteOptions(block_rows=200)
    written = write(store, segment_format("tlm3"), schema, [batch_of(rows, schema)], options=options)
    plain = write(open_store("memory://"), segment_format("tlm"), schema, [batch_of(rows, schema)], options=options)
    reader: Any = segment_format("tlm3").open_extent(store, KEY)
    kinds = {(part.column, part.part) for part in reader.parts()}
    assert {("line", "templates"), ("host", "dictionary")} <= kinds
    assert written.column_stats == plain.column_stats


def test_texts_that_begin_alike_have_numbers_of_their_own_wherever_they_lie() -> None:
    texts = [b"a" * size + end for size in range(18) for end in (b"", b"b", b"\0", b"bc")] * 2
    lengths = np.array(list(map(len, texts)))
    letters = np.frombuffer(b"".join(texts), np.uint8)  # the last of them end with the letters
    numbering = template_loops.Numbering()
    found = numbering.add(letters, np.cumsum(lengths) - lengths, lengths).tolist()
    distinct = list(dict.fromkeys(texts))
    assert found == [distinct.index(text) for text in texts]
    assert numbering.texts().to_pylist() == distinct


def test_damaged_templates_are_refused_or_read_and_do_no_harm() -> None:
    chance, refused = random.Random(5), 0
    blocks = [pa.array(LOG, pa.utf8())]
    for every_word in (False, True):
        (page,), dictionary = encoded(blocks, every_word=every_word)
        for _ in range(1500):
            damaged = bytearray(page)
            for _ in range(chance.choice((1, 1, 4))):
                damaged[chance.randrange(len(damaged))] = chance.randrange(256)
            cut = bytes(damaged[: chance.choice((len(damaged), chance.randrange(len(damaged))))])
            try:
                assert len(templates.decode_column(memoryview(cut), len(LOG), dictionary)) == len(LOG)
            except ValueError:
                refused += 1
    assert refused > 1000


PARTS = ("orke", "ask", "blk", "sessio", "xx", "odd", "user", "nowhere", "ello", "ms", "ab", "a", "7919", "o1")


def _searched(lines: list[str | None], *, every_word: bool) -> tuple[memoryview, templates.Dictionary]:
    (page,), dictionary = encoded([pa.array(lines, pa.utf8())], every_word=every_word)
    return memoryview(page), dictionary


@pytest.mark.parametrize("every_word", [False, True])
def test_parts_of_words_are_found_where_they_are_and_nowhere_else(every_word: bool) -> None:
    lines = [row["line"] for row in [*tide_v3_lines_rows(), *tide_v3_words_rows()]]
    lines += [f"Hello{n % 9}AB user{n}ab xab{n}" for n in range(300)] + ["once aB9", None, ""]
    page, dictionary = _searched(lines, every_word=every_word)
    told = 0
    for part in PARTS:
        found = template_search.rows_holding(page, len(lines), dictionary, part)
        assert (found is None) == bool(re.search("[0-9]", part)), part
        if found is not None:
            told += 1
            assert found.tolist() == [part in (line or "").lower() for line in lines], part
    assert told > 8


def test_what_is_in_many_places_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str | None] = [f"a{n}x of {n}" for n in range(400)]
    page, dictionary = _searched(lines, every_word=True)
    monkeypatch.setattr(template_search, "MOST", 300)
    assert template_search.rows_holding(page, len(lines), dictionary, "nothing") is not None
    texts: list[str | None] = [f"q{n * n * 7919:x}f7z of" for n in range(400)]
    page, dictionary = _searched(texts, every_word=False)
    assert template_search.rows_holding(page, len(texts), dictionary, "z") is None


def test_damaged_pages_are_searched_or_refused() -> None:
    chance, refused = random.Random(8), 0
    lines = [row["line"] for row in tide_v3_lines_rows()]
    page, dictionary = _searched(lines, every_word=False)
    for _ in range(500):
        damaged = bytearray(page)
        damaged[chance.randrange(chance.choice((40, len(damaged))))] = chance.randrange(256)
        try:
            template_search.rows_holding(memoryview(bytes(damaged)), len(lines), dictionary, "orke")
        except ValueError:
            refused += 1
    assert refused > 50
