"""Show that filters never say no wrongly, that they say no at all, and that hashes are the ones on disk."""

from __future__ import annotations

import base64
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.oracle import tokens_of
from tests.support.strategies import examples, texts
from tidelake.errors import InvalidInputError
from tidelake.kernels.bloom import (
    GRAM_BYTES,
    SMALLEST_BYTES,
    Filter,
    Grams,
    hash_bytes,
    hash_int,
    hash_ints,
    size_for,
)

HASHES = st.lists(st.integers(0, 2**64 - 1), max_size=60)
SIZES = st.sampled_from([8, 16, 32, 256, 4096])


def array_of(hashes: list[int]) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    return np.array(hashes, dtype=np.uint64)


def missed(filter: Filter, hashes: list[int]) -> list[int]:
    return [hash for hash in hashes if hash not in filter]


def wrong_yeses(filter: Filter, *, tries: int = 4000) -> float:
    strangers = (hash_int(10**12 + number) for number in range(tries))
    return sum(hash in filter for hash in strangers) / tries


@examples(200)
@given(HASHES, SIZES, SIZES)
def test_filter_never_says_no_wrongly_when_folded_or_trimmed(hashes: list[int], size: int, folded: int) -> None:
    filter = Filter.sized(array_of(hashes), size)
    shapes = [filter, filter.folded(folded), filter.trimmed(), Filter.of(array_of(hashes), max_bytes=folded)]
    assert [missed(shape, hashes) for shape in shapes] == [[]] * 4
    assert filter.folded(folded) == Filter.sized(array_of(hashes), min(size, folded))


@examples(200)
@given(HASHES, HASHES, SIZES, SIZES)
def test_filter_never_says_no_wrongly_when_united(ours: list[int], theirs: list[int], a: int, b: int) -> None:
    united = Filter.sized(array_of(ours), a) | Filter.sized(array_of(theirs), b)
    assert missed(united, ours + theirs) == []


def test_filter_says_no_nearly_always_to_what_it_does_not_hold() -> None:
    filter = Filter.of(hash_ints(np.arange(10_000)), max_bytes=1 << 20)
    assert len(filter.bits) == 16_384
    assert wrong_yeses(filter) < 0.03
    assert wrong_yeses(filter.trimmed()) < 0.03


def test_filter_of_nothing_holds_nothing() -> None:
    assert (len(Filter.of(array_of([]), max_bytes=64).bits), wrong_yeses(Filter.of(array_of([]), max_bytes=64))) == (
        8,
        0,
    )


def test_filter_keeps_its_precision_when_united_with_a_small_one() -> None:
    many = Filter.of(hash_ints(np.arange(10_000)), max_bytes=1 << 20)
    few = Filter.of(hash_ints(np.arange(3)), max_bytes=1 << 20)
    assert wrong_yeses(many | few) < 0.2
    assert many | few == few | many


def test_filter_trims_to_the_least_size_that_keeps_its_precision() -> None:
    sparse = Filter.sized(hash_ints(np.arange(100)), 65_536)
    trimmed = sparse.trimmed()
    assert len(trimmed.bits) == 128
    assert missed(trimmed, hash_ints(np.arange(100)).tolist()) == []


@pytest.mark.parametrize("size", [0, 4, 7, 24, 1 << 29])
def test_filter_refuses_a_size_that_is_no_power_of_two(size: int) -> None:
    with pytest.raises(InvalidInputError, match="power of two"):
        Filter(bytes(size))


@pytest.mark.parametrize(("keys", "size"), [(0, 8), (6, 8), (7, 8), (8, 16), (1000, 2048), (100_000, 131_072)])
def test_size_for_gives_about_ten_bits_a_key(keys: int, size: int) -> None:
    assert size_for(keys) == size
    assert size_for(keys) >= SMALLEST_BYTES


@examples(100)
@given(HASHES, SIZES)
def test_filter_survives_being_text(hashes: list[int], size: int) -> None:
    filter = Filter.sized(array_of(hashes), size)
    assert Filter.from_text(filter.to_text()) == filter


@examples(100)
@given(st.lists(texts(), max_size=4))
def test_grams_hold_exactly_the_runs_of_their_tokens(held: list[str]) -> None:
    tokens = [token for text in held for token in tokens_of(text)]
    grams = Grams.of_tokens(tokens)
    runs = {token[at : at + 3] for token in tokens for at in range(len(token) - 2)}
    strangers = {"oom", "zzz", "abc", "tim", "imo", "000"} - runs
    assert {run for run in runs | strangers if grams.may_hold(run)} == runs
    assert all(grams.may_hold(token) for token in tokens)
    assert Grams.from_text(grams.to_text()) == grams


@examples(50)
@given(st.lists(texts(), max_size=3), st.lists(texts(), max_size=3))
def test_grams_unite_exactly(ours: list[str], theirs: list[str]) -> None:
    a, b = ([token for text in held for token in tokens_of(text)] for held in (ours, theirs))
    assert Grams.of_tokens(a) | Grams.of_tokens(b) == Grams.of_tokens(a + b)


@pytest.mark.parametrize("text", ["", "!", "AAAA", "AAAAAAAAAAA", "AAAAAAAAAA==", "é", None, 7])
def test_filter_refuses_text_that_is_not_one(text: str) -> None:
    with pytest.raises(InvalidInputError):
        Filter.from_text(text)


@pytest.mark.parametrize("text", ["", "!", "AAAA", Grams(bytes(GRAM_BYTES)).to_text()[:-8], None, 7])
def test_grams_refuse_text_that_is_not_one(text: str) -> None:
    with pytest.raises(InvalidInputError):
        Grams.from_text(text)


def test_grams_refuse_a_bomb_without_inflating_it() -> None:
    bomb = base64.b64encode(zlib.compress(bytes(100_000_000))).decode()
    with pytest.raises(InvalidInputError, match="fixed size"):
        Grams.from_text(bomb)


@pytest.mark.parametrize(
    ("data", "hash"),
    [
        (b"", 0xE220_A839_7B1D_CDAF),
        (b"a", 0x910E_78A3_747E_FF81),
        (b"timeout", 0x2213_97DF_6271_ACFB),
        (b"abcdefgh", 0x188B_C7D9_BE67_3DA0),
        (b"abcdefghi", 0xDBC3_CC51_1171_38DB),
        ("日本語".encode(), 0x927F_E705_8B44_D6F7),
    ],
)
def test_hash_bytes_is_the_one_on_disk(data: bytes, hash: int) -> None:
    assert hash_bytes(data) == hash


def test_hash_ints_equals_hash_int_at_every_edge() -> None:
    values = [0, 1, -1, 42, 2**31, -(2**31), 2**63 - 1, -(2**63)]
    assert hash_ints(np.array(values, dtype=np.int64)).tolist() == [hash_int(value) for value in values]
    assert [hash_int(value) for value in (0, 1, -1)] == [0, 0x5692_161D_100B_05E5, 0xB4D0_55FC_F2CB_BD7B]
