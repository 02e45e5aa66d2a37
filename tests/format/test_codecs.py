"""Show that every codec gives back what it was given, is chosen within two percent of the best, and survives damage."""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.strategies import examples
from tidelake.format import choosing, codecs
from tidelake.format.choosing import Choice

INT64 = st.integers(-(2**63), 2**63 - 1)
ROWS = 40_000


def ints(kind: str, rows: int = ROWS) -> npt.NDArray[np.int64]:
    rng = np.random.default_rng(7)
    return {
        "times": np.cumsum(rng.integers(0, 1000, rows)),
        "one value": np.full(rows, -5),
        "noise": rng.integers(-(2**63), 2**63 - 1, rows),
        "few values": rng.choice([200, 404, 500], rows, p=[0.9, 0.08, 0.02]),
        "counter": np.arange(rows) * 1000 + 7,
        "extremes": np.resize([-(2**63), 2**63 - 1], rows),
        "runs": np.repeat(rng.integers(0, 2**40, rows // 100), 100),
        "pattern": np.resize(rng.integers(0, 2**30, 911), rows),
    }[kind].astype(np.int64)


KINDS = ("times", "one value", "noise", "few values", "counter", "extremes", "runs", "pattern")


@given(st.lists(INT64 | st.integers(-3, 300), max_size=200))
@examples(200)
def test_integers_come_back(values: list[int]) -> None:
    wanted = np.array(values, dtype=np.int64)
    assert codecs.decode_ints(memoryview(codecs.encode_ints(wanted)), len(values)).tolist() == values


@given(
    st.lists(st.integers(0, 2**64 - 1).map(lambda bits: struct.unpack("<d", struct.pack("<Q", bits))[0]), max_size=200)
)
@examples(200)
def test_reals_come_back_bit_by_bit(values: list[float]) -> None:
    wanted = np.array(values, dtype=np.float64)
    assert codecs.decode_reals(memoryview(codecs.encode_reals(wanted)), len(values)).tobytes() == wanted.tobytes()


@given(st.lists(st.none() | st.binary(max_size=40) | st.sampled_from([b"", b"a", b"constant"]), max_size=200))
@examples(200)
def test_texts_and_their_nulls_come_back(values: list[bytes | None]) -> None:
    wanted = pa.array(values, pa.binary())
    assert codecs.decode_column(memoryview(codecs.encode_column(wanted)), len(values), pa.binary()).equals(wanted)


@given(st.lists(st.none() | st.booleans(), max_size=200))
@examples(100)
def test_booleans_and_their_nulls_come_back(values: list[bool | None]) -> None:
    wanted = pa.array(values, pa.bool_())
    assert codecs.decode_column(memoryview(codecs.encode_column(wanted)), len(values), pa.bool_()).equals(wanted)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("encode", codecs._INTS)
def test_every_codec_of_integers_gives_them_back(kind: str, encode: Callable[[Any], bytes]) -> None:
    values = ints(kind)
    assert codecs.decode_ints(memoryview(encode(values)), len(values)).tolist() == values.tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_the_codec_chosen_is_within_two_percent_of_the_best(kind: str) -> None:
    values = ints(kind)
    best = min(len(encode(values)) for encode in codecs._INTS)
    assert len(codecs.encode_ints(values)) <= best * 1.02 + 16


@pytest.mark.parametrize("first", KINDS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_codec_taken_over_from_another_block_is_within_two_percent_of_the_best(first: str, kind: str) -> None:
    choice = Choice()
    codecs.encode_ints(ints(first), choice)
    learned, choice.is_open = (choice.codec, choice.rate), False
    values = ints(kind)[::-1]
    page = codecs.encode_ints(values, choice)
    best = min(len(encode(values)) for encode in codecs._INTS)
    assert len(page) <= best * 1.02 + 16
    assert (choice.codec, choice.rate) == learned  # what is stored does not depend on which thread came first
    assert np.array_equal(codecs.decode_ints(memoryview(page), len(values)), values)


@pytest.mark.parametrize("kind", ["times", "few values", "noise"])
def test_what_pcodec_found_in_the_first_block_it_is_told_of_the_others(kind: str) -> None:
    values = ints(kind)
    choice = Choice()
    first = codecs.encode_ints(values, choice)
    choice.is_open = False
    again = codecs.encode_ints(values, choice)
    assert first == again
    assert codecs.decode_ints(memoryview(again), len(values)).tolist() == values.tolist()
    if choice.codec in (codecs._pco_ints, *codecs._pco_told):
        assert choice.codec is not codecs._pco_ints
        assert len(again) <= len(codecs._pco_ints(values)) * choosing.AS_GOOD
    assert kind == "noise" or choice.codec in codecs._pco_told


@pytest.mark.parametrize("low", [-(2**63), -1, 0, 1, 255, 2**40 + 3])
@pytest.mark.parametrize("span", [1, 255, 256, 65_535, 65_536, 2**32, 2**63 - 1])
def test_numbers_are_narrowed_to_their_distance_from_the_least(low: int, span: int) -> None:
    if low + span >= 2**63:
        return
    values = np.array([low, low + span, low + span // 3], dtype=np.int64)
    width, base, small = codecs._narrowed(values)
    assert (base, small.tolist()) == (low, [0, span, span // 3])
    assert width == small.itemsize
    assert span >> 8 * width == 0


@pytest.mark.parametrize("odd", [None, -0.0, math.nan, math.inf, 1e300, 0.1 + 0.2, 2.0**53])
def test_decimals_come_back_bit_by_bit_whatever_stands_among_them(odd: float | None) -> None:
    values = np.round(np.random.default_rng(3).lognormal(3, 1, ROWS), 3)
    if odd is not None:
        values[-1] = odd  # which no sample sees
    page = codecs.encode_reals(values)
    assert (page[0] == codecs.DECIMAL) == (odd is None)
    assert len(page) < values.nbytes / 3
    assert codecs.decode_reals(memoryview(page), ROWS).tobytes() == values.tobytes()


def test_numbers_of_a_dictionary_stay_numbers() -> None:
    values = pa.array(["a", "b", None, "a"])
    page = codecs.encode_column(values, np.array([0, 1, 0]))
    found = codecs.decode_column(memoryview(page), 4, pa.utf8(), pa.array(["a", "b"]))
    assert found.type == pa.dictionary(pa.int32(), pa.utf8())
    assert found.to_pylist() == ["a", "b", None, "a"]
    with pytest.raises(ValueError, match="beyond the dictionary"):
        codecs.decode_column(memoryview(page), 4, pa.utf8(), pa.array(["a"]))


def pages() -> list[tuple[pa.DataType, bytes, int]]:
    texts = pa.array([f"text {n % 17} {n}" for n in range(500)])
    some = pa.array([None if n % 3 else n * 7 for n in range(500)], pa.int64())
    arrays = [texts, some, pa.array([n % 7 == 0 for n in range(500)]), pa.array([n / 7 for n in range(500)])]
    arrays += [pa.array(ints(kind, 500)) for kind in KINDS]
    return [(each.type, codecs.encode_column(each), len(each)) for each in arrays]


def test_damaged_pages_are_refused_or_read_and_do_no_harm() -> None:
    chance, refused = random.Random(11), 0
    for kind, page, count in pages():
        for _ in range(300):
            damaged = bytearray(page)
            for _ in range(chance.choice((1, 1, 4))):
                damaged[chance.randrange(min(len(damaged), chance.choice((12, len(damaged)))))] = chance.randrange(256)
            cut = bytes(damaged[: chance.choice((len(damaged), chance.randrange(len(damaged))))])
            try:
                assert len(codecs.decode_column(memoryview(cut), count, kind)) == count
            except ValueError:
                refused += 1
    assert refused > 300
