"""Show which texts get a dictionary, and that it is the same whoever numbers them."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from tidelake.format import codecs, dictionaries


def blocks_of(words: list[str], sizes: list[int]) -> list[pa.Array]:
    chance = random.Random(3)
    return [pa.array([*chance.choices(words, k=size), None], pa.utf8()) for size in sizes]


@pytest.mark.parametrize("length", [0, 3, 8, 9, 40, 300])
def test_texts_are_numbered_alike_with_a_compiler_and_without(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = [each.drop_null() for each in blocks_of([f"{n}" + "x" * length for n in range(50)], [400, 3, 700])]
    found, codes = dictionaries._numbered(blocks)
    monkeypatch.setattr(dictionaries, "has_loops", lambda: False)
    plain, plain_codes = dictionaries._numbered(blocks)
    assert found.equals(plain)
    assert found.nbytes == plain.nbytes
    assert [each.tolist() for each in codes] == [each.tolist() for each in plain_codes]
    for block, own in zip(blocks, codes, strict=True):
        assert found.take(pa.array(own)).equals(block)


def test_texts_that_come_again_get_a_dictionary_and_others_do_not() -> None:
    chance = random.Random(5)
    few = [f"{chance.getrandbits(64):x}" for _ in range(200)]
    coded = dictionaries.coded(blocks_of(few, [5_000, 20_000]))
    assert coded is not None
    assert sorted(coded.dictionary.to_pylist()) == sorted(few)
    assert coded.page == codecs.encode_texts(coded.dictionary)
    assert len(coded.page) + 20_000 < coded.size() < len(coded.page) + 30_000
    new = [f"{chance.getrandbits(64):x}" for _ in range(20_000)]
    assert dictionaries.coded([pa.array(new)]) is None
