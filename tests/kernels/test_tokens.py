"""Hold the compiled loops to the plain rules they stand for: tokens, distinct texts, hashes, filters."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.oracle import tokens_of
from tests.support.strategies import examples, texts
from tidelake.kernels.bloom import GRAM_BYTES, Filter, Grams, hash_bytes
from tidelake.kernels.text_loops import BLOCK_TOKEN_CAP, TokenTable, distinct_texts, filter_of
from tidelake.kernels.tokens import TOKEN_LENGTH_CAP, TOKEN_SET_CAP, Run, runs_of, tokenize

TWINS = ("collidesw7kkjzwyfobpf8vb", "collideswiththisonetoken")  # equal hashes, found by search
BLOCKS = st.lists(st.lists(texts(), max_size=8), min_size=1, max_size=4)


def described(table: TokenTable, block: Sequence[str]) -> tuple[set[int], Grams]:
    found = table.add(pa.array(block, pa.utf8()))
    assert found is not None
    hashes, grams = found
    assert len(set(hashes.tolist())) == len(hashes)
    return set(hashes.tolist()), grams


def hashes_of(tokens: Sequence[str]) -> set[int]:
    return {hash_bytes(token.encode()) for token in tokens}


def numbered(count: int) -> list[str]:
    return [f"word{number:06d}" for number in range(count)]


@examples(300)
@given(texts())
@example("UPPER-case_ID42 é")
@example("\u212aa \u0130a")
def test_tokenize_follows_the_rule(text: str) -> None:
    assert tokenize(text) == tokens_of(text)


def test_tokenize_splits_at_all_but_ascii_letters_and_digits() -> None:
    assert tokenize("UPPER-case_ID42 é x, 10.0.0.1") == ["upper", "case", "id42", "10"]


@examples(200)
@given(BLOCKS)
@example([["a" * 40_000 + " bb"], ["bb", "c" * 200_000]])
@example([["a" * 256, "b" * 256], ["c" * 257]])
@example([["abcdefghi abcdefghj abcdefgh abcdefg"], ["ABCDEFGHI"]])
def test_token_table_finds_the_tokens_of_every_block(blocks: list[list[str]]) -> None:
    table, tokens = TokenTable(), set[str]()
    for block in blocks:
        wanted = [token for text in block for token in tokens_of(text)]
        assert described(table, block) == (hashes_of(wanted), Grams.of_tokens(wanted))
        tokens |= set(wanted)
        too_long = any(len(token) > TOKEN_LENGTH_CAP for token in tokens)
        assert table.tokens == (None if too_long else tuple(sorted(tokens)))


@examples(100)
@given(st.lists(st.none() | texts(), max_size=12), st.integers(0, 12), st.integers(0, 12))
def test_token_table_reads_only_the_slice_it_is_given(texts: list[str | None], start: int, length: int) -> None:
    found = TokenTable().add(pa.array(texts, pa.utf8()).slice(start, length).drop_null())
    wanted = [token for text in texts[start : start + length] if text is not None for token in tokens_of(text)]
    assert found is not None
    assert (set(found[0].tolist()), found[1]) == (hashes_of(wanted), Grams.of_tokens(wanted))


def test_token_table_reads_a_slice_of_a_whole_array_where_it_lies() -> None:
    table = TokenTable()
    table.add(pa.array(["before", "here now", "", "there", "after"]).slice(1, 3))
    assert table.tokens == ("here", "now", "there")


def test_token_table_keeps_every_token_when_it_grows() -> None:
    words = numbered(9_000)
    table = TokenTable()
    hashes, grams = described(table, [" ".join(words[at : at + 100]) for at in range(0, len(words), 100)])
    assert (hashes, grams, table.tokens) == (hashes_of(words), Grams.of_tokens(words), tuple(words))


def test_token_table_takes_a_token_longer_than_all_before_it() -> None:
    letters = "abcdefghij" * 30_000
    table = TokenTable()
    hashes, grams = described(table, ["ab", letters, letters.upper()])
    assert (hashes, grams) == (hashes_of(["ab", letters]), Grams.of_tokens(["ab", letters]))
    assert table.tokens is None


def test_tables_tell_texts_of_one_hash_apart() -> None:
    assert hash_bytes(TWINS[0].encode()) == hash_bytes(TWINS[1].encode())
    table = TokenTable()
    table.add(pa.array([*TWINS, *TWINS]))
    assert table.tokens == TWINS
    assert distinct_texts(pa.array([*TWINS, *TWINS]))[0].to_pylist() == list(TWINS)


def test_token_table_is_exact_up_to_its_cap_and_none_past_it() -> None:
    words = numbered(TOKEN_SET_CAP + 1)
    table = TokenTable()
    described(table, words[:-1])
    assert table.tokens == tuple(words[:-1])
    described(table, words[:10])
    assert table.tokens == tuple(words[:-1])
    described(table, words[-1:])
    assert table.tokens is None


def test_token_table_still_describes_blocks_past_its_cap() -> None:
    table = TokenTable(cap=3)
    described(table, ["aa bb cc dd"])
    for block in (["ee ff", "aa"], [""], ["gg"]):
        wanted = [token for text in block for token in tokens_of(text)]
        assert described(table, block) == (hashes_of(wanted), Grams.of_tokens(wanted))
    assert table.tokens is None


def test_token_table_gives_a_block_up_when_it_has_too_many_tokens() -> None:
    table = TokenTable()
    flood = [f"{number:x}z{number % 7}" for number in range(BLOCK_TOKEN_CAP * 3)]
    assert table.add(pa.array([" ".join(flood[at : at + 1000]) for at in range(0, len(flood), 1000)])) is None
    assert table.tokens is None
    assert described(table, ["after the flood"])[0] == hashes_of(["after", "the", "flood"])


@examples(200)
@given(st.lists(st.none() | texts(), max_size=30), st.integers(0, 5))
def test_distinct_texts_finds_each_value_once(texts: list[str | None], start: int) -> None:
    present = pa.array(texts, pa.utf8()).slice(start).drop_null()
    unique, hashes = distinct_texts(present)
    wanted = list(dict.fromkeys(present.to_pylist()))
    assert (unique.to_pylist(), hashes.tolist()) == (wanted, [hash_bytes(text.encode()) for text in wanted])


@examples(100)
@given(st.lists(st.binary(max_size=20), max_size=30))
def test_distinct_texts_takes_binary(values: list[bytes]) -> None:
    unique, hashes = distinct_texts(pa.array(values, pa.binary()))
    wanted = list(dict.fromkeys(values))
    assert (unique.to_pylist(), hashes.tolist()) == (wanted, [hash_bytes(value) for value in wanted])


@pytest.mark.parametrize("length", range(40))
def test_kernels_hash_as_hash_bytes_does_at_every_length(length: int) -> None:
    text = ("0123456789abcdefghijklmnopqrstuvwxyz" * 2)[:length]
    other = text[:-1] + "z"
    texts = list(dict.fromkeys([text, other]))
    assert distinct_texts(pa.array(texts))[1].tolist() == [hash_bytes(each.encode()) for each in texts]
    assert described(TokenTable(), texts)[0] == hashes_of([each for each in texts if len(each) >= 2])


@pytest.mark.parametrize("size", [8, 64, 4096, 65_536])
def test_filter_of_equals_the_plain_filter(size: int) -> None:
    hashes = np.random.default_rng(size).integers(0, 2**64, size, dtype=np.uint64)
    assert filter_of(hashes, size) == Filter.sized(hashes, size)


def test_runs_of_delimits_only_what_the_needle_itself_delimits() -> None:
    assert runs_of("ime out-of mem") == [Run("ime", False, True), Run("out", True, True), Run("of", True, True),
                                         Run("mem", True, False)]  # fmt: skip
    assert runs_of("Time out", anchored=True) == [Run("time", True, True), Run("out", True, False)]
    assert runs_of("Time out", whole=True) == [Run("time", True, True), Run("out", True, True)]
    assert runs_of("a é b") == []


def test_grams_of_no_tokens_hold_nothing() -> None:
    assert Grams.of_tokens([]) == Grams(bytes(GRAM_BYTES))
