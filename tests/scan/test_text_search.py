"""Show that the compiled text search finds what the plain rules find, whatever the letters around."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.strategies import examples
from tidelake.model.predicate import StartsWith, StringContains, StringHas, fold, text_holds
from tidelake.scan.text_search import LONGEST_PATTERN, TextSearch, search

LETTERS = "abKkSsIi -_.0Z@[`{" + "\u212aſ\u0130ıΣσςéÉßẞ日Ⱥⱥ\U0001f600\U00010400\x00\x7f"
NEEDLES = st.text(alphabet=LETTERS, max_size=3) | st.text(max_size=2) | st.just("\ud800é")


def leaves_of(needle: str) -> tuple[TextSearch, ...]:
    return (
        StringHas("s", needle),
        StringContains("s", needle),
        StringContains("s", needle, case_sensitive=True),
        StartsWith("s", needle),
        StartsWith("s", needle, case_sensitive=True),
    )


@examples(200)
@given(st.integers(0, 2**32), st.text(max_size=5), st.lists(NEEDLES, max_size=3))
def test_search_agrees_with_the_plain_rules(seed: int, odd: str, needles: list[str]) -> None:
    draw = random.Random(seed)
    texts: list[str | None] = []
    for _ in range(draw.choice([1, 5, 30])):
        letters = draw.choices(LETTERS, k=draw.choice([0, 1, 3, 8, 90]))
        texts.append(None if draw.random() < 0.1 else "".join(letters) + odd * draw.randint(0, 1))
    source = draw.choice(texts) or "ab"
    at = draw.randrange(len(source) + 1)
    column = pa.array(["before", *texts, "after"]).slice(1, len(texts))
    for needle in (*needles, source[at : at + 2], source[at : at + 3].swapcase(), source):
        for leaf in leaves_of(needle):
            expected = [None if text is None else text_holds(leaf, text) for text in texts]
            assert search(leaf, column).to_pylist() == expected, leaf


@pytest.mark.parametrize("length", [1, 63, 64, 65, 127, 128, 129, 300])
def test_search_finds_a_needle_at_every_place(length: int) -> None:
    for needle in ("#", "#%", "needle"):
        texts = ["." * at + needle + "." * (length - at) for at in range(length)]
        column = pa.array([*texts, "." * length])
        assert search(StringContains("s", needle), column).to_pylist() == [True] * length + [False]


def test_search_does_not_find_a_needle_across_two_texts() -> None:
    column = pa.array(["time", "out", "", "time\n", "out"] * 20)
    for leaf in leaves_of("timeout"):
        assert not any(search(leaf, column).to_pylist())


def test_search_knows_every_letter_as_python_does() -> None:
    every = [chr(code) for code in range(0x20000) if not 0xD800 <= code <= 0xDFFF]  # beyond are only ideographs
    around = pa.array([letter + "x" + letter for letter in every])
    assert search(StringHas("s", "X"), around).to_pylist() == [not letter.isalnum() for letter in every]
    alone = pa.array(every)
    by_fold: dict[str, list[str]] = {}
    for letter in every:
        by_fold.setdefault(fold(letter), []).append(letter)
    for letter in "éΣkſ\U00010400ẞ":
        assert alone.filter(search(StringContains("s", letter), alone)).to_pylist() == by_fold[fold(letter)]


@pytest.mark.parametrize("length", [LONGEST_PATTERN, LONGEST_PATTERN + 1, 5_000])
def test_search_takes_a_needle_of_any_length(length: int) -> None:
    texts = ["É" * length, "é" * (length - 1), "x" + "é" * length, "é" * length + "x", None]
    answers = {leaf: search(leaf, pa.array(texts)).to_pylist() for leaf in leaves_of("é" * length)}
    assert list(answers.values()) == [
        [True, False, False, False, None],
        [True, False, True, True, None],
        [False, False, True, True, None],
        [True, False, False, True, None],
        [False, False, False, True, None],
    ]


def test_search_stays_inside_bytes_that_are_not_text() -> None:
    """Bytes that are no letter are not letters; only what ends a text is read."""
    raw = pa.array([b"\xffx", b"x\xf0", b"x\xf0\x9f", b"\x80\x80\x80\x80x", b"x\xff\xff\xff\xff"], pa.binary())
    broken = raw.view(pa.utf8())
    assert search(StringHas("s", "x"), broken).to_pylist() == [True] * 5
