"""Show that texts split into templates come back to the byte, with a compiler and without, and survive damage."""

from __future__ import annotations

import random
import re
import struct
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
from tidelake.format import (
    WriteOptions,
    codecs,
    postings,
    segment_format,
    template_pages,
    template_rows,
    template_search,
    templates,
)
from tidelake.kernels import plain_templates, template_loops
from tidelake.kernels.plain_templates import message_template
from tidelake.kernels.tokens import Run, has_digit, tokenize
from tidelake.model.schema import Column, DataType, Schema
from tidelake.objects import open_store

PIECES = st.sampled_from(["job", " ", "0", "007", "42", "é", ":", "a1", "99999999999999999999", "9223372036854775807",
                          "<*>", "x9y", "\n", "-", "ms", "12ms"])  # fmt: skip
LINES = st.lists(st.lists(PIECES, max_size=6).map("".join) | st.text(max_size=8), min_size=1, max_size=12)
QUEUES = ("mail", "billing", "index", "search", "archive")
LOG = [row["line"] for row in tide_v3_lines_rows()]


def encoded(blocks: Sequence[pa.Array], *, every_word: bool) -> tuple[list[bytes], template_pages.Dictionary]:
    encoding = templates._Encoding(every_word)
    pages = []
    for block in blocks:
        made = encoding.block(block.drop_null())
        assert made is not None
        pages.append(templates._column_page(block, made)[0])
    return pages, template_pages.Dictionary(encoding.templates.texts(), encoding.words.texts(), every_word=every_word)


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
        drawn = data.draw(st.sets(st.integers(0, len(texts) - 1), max_size=max(1, len(texts) // 8)))
        places = np.array(sorted(drawn), dtype=np.int64)
        known = template_rows.decode_rows(memoryview(pages[0]), len(texts), dictionary)
        for before in (None, known):
            found = some_of(pages[0], len(texts), dictionary, places, before)
            assert found.equals(blocks[0].take(pa.array(places)))

    check()


def some_of(
    page: bytes | memoryview,
    rows: int,
    dictionary: template_pages.Dictionary,
    places: Any,
    known: template_rows.RowTemplates | None = None,
) -> pa.Array:
    opened = template_rows.LinePage(memoryview(page), rows, dictionary, known)
    return template_rows.texts_of([(opened, places)], dictionary)


def many_lines() -> list[str | None]:
    """Lines whose variables are of all kinds, in pages of their own and in the rest."""
    lines: list[str | None] = [
        f"job {n * 7919 % 10007} of node{n % 40} took {n % 3:03d}ms again {n % 3:03d}ms" for n in range(900)
    ]
    lines += [f"text {'abcdefgh'[n % 8] * (n % 5)}{n * 31}x{n} said é{n % 7}" for n in range(300)]
    lines += [f"rare{n % 3} of {n} {'-' * (n % 9)}" for n in range(80)]
    lines += [f"queue {random.Random(n).choice(QUEUES)} to {random.Random(-n).choice(QUEUES)}, now" for n in range(400)]
    random.Random(3).shuffle(lines)
    return [None if n % 101 == 50 else line for n, line in enumerate(lines)]


@pytest.mark.parametrize("every_word", [False, True])
def test_few_rows_are_those_of_the_whole_block(every_word: bool) -> None:
    chance, lines = random.Random(8), many_lines()
    block = pa.array(lines, pa.utf8())
    (page,), dictionary = encoded([block], every_word=every_word)
    known = template_rows.decode_rows(memoryview(page), len(lines), dictionary)
    kinds = {int(each) for each in laid(page, len(lines), dictionary).kinds}
    assert kinds >= ({1, 2, 3} if every_word else {0, 1, 3})
    for count in (0, 1, 3, 40, 150, 700):
        places = np.array(sorted(chance.sample(range(len(lines)), count)), dtype=np.int64)
        for before in (None, known):
            found = some_of(page, len(lines), dictionary, places, before)
            assert found.equals(block.take(pa.array(places)))


def laid(page: bytes, rows: int, dictionary: template_pages.Dictionary) -> template_pages.Laid:
    valid, rest = codecs.decode_nulls(memoryview(page), rows)
    numbers, rest = template_pages.decode_numbers(rest, int(valid.sum()), dictionary)
    return template_pages.laid_out(rest, np.bincount(numbers, minlength=dictionary.count), dictionary)


def test_few_rows_of_damaged_pages_are_refused_or_read() -> None:
    chance, refused, lines = random.Random(6), 0, many_lines()
    (page,), dictionary = encoded([pa.array(lines, pa.utf8())], every_word=False)
    places = np.array([0, 7, 51, 400, 1200], dtype=np.int64)
    for _ in range(600):
        damaged = bytearray(page)
        damaged[chance.randrange(chance.choice((60, len(damaged))))] = chance.randrange(256)
        cut = memoryview(bytes(damaged[: chance.choice((len(damaged), chance.randrange(len(damaged))))]))
        try:
            assert len(some_of(cut, len(lines), dictionary, places)) == len(places)
        except ValueError:
            refused += 1
    assert refused > 200


def test_what_is_written_does_not_depend_on_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template_loops, "STRETCH_BYTES", 500)
    blocks = [pa.array(LOG[at : at + 200], pa.utf8()) for at in (0, 200, 400)]
    compiled = [encoded(blocks, every_word=each)[0] for each in (False, True)]
    monkeypatch.setattr(template_loops, "has_loops", lambda: False)
    assert [encoded(blocks, every_word=each)[0] for each in (False, True)] == compiled


RUNS = st.lists(
    st.sampled_from(["a", "Zz9", "é", " ", ".", "0", "word" * 14, "x" * 55, "y" * 56, "7" * 57, ""]), max_size=5
)


@examples(150)
@given(st.lists(RUNS.map("".join), max_size=9), st.booleans(), st.sampled_from([1, 40, 1 << 20]))
def test_loops_split_as_the_plain_way_does(lines: list[str], every_word: bool, stretch: int) -> None:
    texts = pa.array(["before", *lines], pa.utf8()).slice(1)
    letters, places = template_loops._buffers(texts)
    plain = plain_templates.split(letters, places, every_word=every_word)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(template_loops, "STRETCH_BYTES", stretch)
        found = template_loops.split(texts, every_word=every_word)
    assert [each.tolist() for each in found[1:]] == [each.tolist() for each in plain]


@examples(100)
@given(
    st.lists(st.text("ab\0", max_size=20) | st.sampled_from(["x" * 24, "x" * 23 + "y", "y" + "x" * 23]), max_size=60)
)
def test_loops_number_as_the_plain_way_does(texts: list[str]) -> None:
    known: dict[bytes, int] = {}
    numbering = template_loops.Numbering()
    for part in (texts, texts[::-1]):
        block = pa.array(["", *part], pa.utf8()).slice(1)
        assert numbering.number(block).tolist() == [known.setdefault(text.encode(), len(known)) for text in part]
    assert numbering.texts().to_pylist() == list(known)


def test_many_texts_are_numbered() -> None:
    texts = pa.array([f"{n * 7919 % 30_000:x}" * (1 + n % 3) for n in range(60_000)])
    numbering = template_loops.Numbering()
    found = numbering.number(texts)
    assert len(numbering) == len(set(texts.to_pylist()))
    assert numbering.texts().take(pa.array(found)).equals(texts.cast(pa.binary()))


def test_words_that_come_often_have_small_numbers() -> None:
    chance = random.Random(5)
    words = [f"{'abcdefghij'[n % 10]}{'klmnopqrst'[n // 10 % 10]}{'uvwxyz'[n // 100]}" for n in range(600)]
    texts = pa.array([" ".join(words[int(chance.random() ** 2 * 600)] for _ in range(8)) for _ in range(30_000)])
    with ThreadPoolExecutor(1) as pool:
        found = templates.templated([texts.slice(0, 15_000), texts.slice(15_000)], None, pool)
    assert found is not None
    counts: dict[str, int] = {}
    for text in texts.to_pylist():
        for word in text.split(" "):
            counts[word] = counts.get(word, 0) + 1
    in_order = [counts[word.decode()] for word in found.words.to_pylist()]
    assert sum(in_order[:60]) > 0.98 * sum(sorted(in_order, reverse=True)[:60])
    assert sum(in_order[:300]) > 0.98 * sum(sorted(in_order, reverse=True)[:300])


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


@pytest.mark.parametrize("plainly", [False, True])
def test_numbers_among_very_many_letters_come_back(plainly: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if plainly:
        monkeypatch.setattr(template_loops, "has_loops", lambda: False)
    for line in ("a" * 2**16 + "{}", "{}" + "b" * 2**16, "a" * (2**16 - 1) + "{}", "x {}"):
        block = pa.array([line.format(n) for n in range(130)], pa.utf8())
        (page,), dictionary = encoded([block], every_word=False)
        assert templates.decode_column(memoryview(page), len(block), dictionary).equals(block)
        assert laid(page, len(block), dictionary).kinds.tolist() == [1 if len(line) < 2**16 + 2 else 0]


def test_numbers_of_any_width_are_found_though_we_write_none_such() -> None:
    """Digits may be more than the width says, or zeros before those that fit into 63 bits."""
    for width, numbers, asked in ((2, [7, 123, 99], ["07", "123", "99"]), (30, [5, 6, 7], ["0" * 29 + "6"])):
        written = [f"a{str(number).zfill(width)}" for number in numbers]
        head = struct.pack("<BHH", width, 1, 0) + b"a"
        variable = template_search._Numbers.of(
            memoryview(head + codecs.encode_ints(np.array(numbers, dtype=np.int64))), len(numbers)
        )
        for digits in (*asked, "7", "0123", "007", "9" * 30):
            found = template_search._Word(f"a{digits}".encode()).in_numbers(variable)
            assert found.tolist() == [at for at, text in enumerate(written) if text == f"a{digits}"], (width, digits)


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


def _searched(lines: list[str | None], *, every_word: bool) -> tuple[memoryview, template_pages.Dictionary]:
    (page,), dictionary = encoded([pa.array(lines, pa.utf8())], every_word=every_word)
    return memoryview(page), dictionary


@pytest.mark.parametrize("every_word", [False, True])
def test_parts_of_words_are_found_where_they_are_and_nowhere_else(every_word: bool) -> None:
    lines = [row["line"] for row in [*tide_v3_lines_rows(), *tide_v3_words_rows()]]
    lines += [f"Hello{n % 9}AB user{n}ab xab{n}" for n in range(300)] + ["once aB9", None, ""]
    page, dictionary = _searched(lines, every_word=every_word)
    told = 0
    for part in PARTS:
        found = template_search.rows_holding(page, len(lines), dictionary, Run(part, starts=False, ends=False))
        assert (found is None) == bool(re.search("[0-9]", part)), part
        if found is not None:
            told += 1
            assert found.tolist() == [part in (line or "").lower() for line in lines], part
    assert told > 8


def test_what_is_in_many_places_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str | None] = [f"a{n}x of {n}" for n in range(400)]
    page, dictionary = _searched(lines, every_word=True)
    monkeypatch.setattr(template_search, "MOST", 300)
    nothing = Run("nothing", starts=True, ends=True)
    assert template_search.rows_holding(page, len(lines), dictionary, nothing) is not None
    texts: list[str | None] = [f"q{n * n * 7919:x}f7z of" for n in range(400)]
    page, dictionary = _searched(texts, every_word=False)
    assert template_search.rows_holding(page, len(texts), dictionary, Run("z", starts=False, ends=True)) is None


@pytest.mark.parametrize("every_word", [False, True])
@pytest.mark.parametrize("compiled", [False, True])
def test_words_with_digits_are_found_where_they_are_and_nowhere_else(
    every_word: bool, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not compiled:
        monkeypatch.setattr(template_loops, "has_loops", lambda: False)
    chance = random.Random(3)
    lines: list[str | None] = [row["line"] for row in [*tide_v3_lines_rows(), *tide_v3_words_rows()]]
    lines += [f"Took {n % 300} ms, 0{n % 7}:{n % 60:02}, id{n:04}X {n * n * 7919:x} é{n}" for n in range(600)]
    lines += [f"{chance.randrange(2**63)} and {10 ** chance.randrange(1, 25)} -5{n % 3}" for n in range(300)]
    lines += ["once aB9", None, "", "9" * 30, "0", "00"]
    page, dictionary = _searched(lines, every_word=every_word)
    words = [set(tokenize(line or "")) for line in lines]
    known = sorted({word for each in words for word in each if has_digit(word)})
    others = ["ab9", "once9", "299", "0299", "id0007x", "id7x", "00", "01", "9" * 30, "51"]
    for word in [*chance.sample(known, 60), *others]:
        found = template_search.rows_holding(page, len(lines), dictionary, Run(word, starts=True, ends=True))
        assert found is not None, word
        assert found.tolist() == [word in each for each in words], word


def test_damaged_pages_are_searched_or_refused() -> None:
    chance, refused = random.Random(8), 0
    lines = [row["line"] for row in tide_v3_lines_rows()]
    page, dictionary = _searched(lines, every_word=False)
    for _ in range(500):
        damaged = bytearray(page)
        damaged[chance.randrange(chance.choice((40, len(damaged))))] = chance.randrange(256)
        for run in (Run("orke", starts=False, ends=False), Run("worker7", starts=True, ends=True)):
            try:
                template_search.rows_holding(memoryview(bytes(damaged)), len(lines), dictionary, run)
            except ValueError:
                refused += 1
    assert refused > 50
