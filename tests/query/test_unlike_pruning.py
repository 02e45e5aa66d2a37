"""What asks for other values than some, or for an ending, prunes where statistics prove it, and loses no row."""

from __future__ import annotations

import sys
from collections import defaultdict
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidelake
from tests.support.strategies import examples
from tidelake import Lake
from tidelake.model.predicate import InSet, Not, fold
from tidelake.pruning.outcomes import may_match
from tidelake.pruning.statistics import ColumnStats, Stats
from tidelake.query import session
from tidelake.query.functions.patterns import in_any_case

ROWS = 1100  # of an extent: fewer would stay hot
TEXTS = ("a", "b", "ab", "Ab", "", None, "x y", "é", "İi", "\u212aſ", "ks")
# Of each extent, what its rows have in turn.
EXTENTS: tuple[tuple[str | None, ...], ...] = (
    *(("a",), ("b",), ("ab",), ("",), (None,), ("x y",)),
    *(("a", "b"), ("a", None), ("Ab", "ab"), ("é", "İi"), TEXTS),
)
NUMBERS = (1, 2, None, 7, 1, 2, 3, None, 1, 5, 2)
SOUGHT = ("a", "b", "ab", "AB", "", "y", "é", "i", "k", "S", "KS", "\u0130")
TEXT_OPERATORS = (
    *("==", "!=", "in", "!in", "has", "!has", "has_cs", "contains", "!contains", "contains_cs", "!contains_cs"),
    *("startswith", "!startswith", "endswith", "!endswith", "endswith_cs", "!endswith_cs", "hassuffix_cs"),
    *("hasprefix_cs", "hasprefix", "hassuffix", "=~", "!~", "in~", "!in~"),
)


@pytest.fixture(scope="module", params=["tlm2", "tlm3"])
def lake(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    lake = tidelake.connect(Path(tmp_path_factory.mktemp("unlike")) / "lake", upkeep=False)
    columns = {"ts": "timestamp", "id": "long", "s": "string", "n": "long", "r": "real", "b": "bool", "d": "dynamic"}
    table = lake.create_table("t", columns, time="ts", format=request.param)
    for at, (texts, number) in enumerate(zip(EXTENTS, NUMBERS, strict=True)):
        table.append(
            [
                {
                    "ts": 1_790_000_000 + row, "id": at * ROWS + row, "s": texts[row % len(texts)], "n": number,
                    "r": None if number is None else float("nan") if number == 7 else number / 2, "b": at % 3 == 0,
                    "d": {"x": texts[row % len(texts)]},
                }
                for row in range(ROWS)
            ]
        )  # fmt: skip
    return lake


def asked(lake: Lake, condition: str, *, prune: bool) -> tuple[list[Any], int]:
    found = session.run(lake, f"t | where {condition} | project id", language="kql", engine="local", prune=prune)
    return sorted(found.to_arrow()["id"].to_pylist()), len(found.plans[0].tasks)


@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.torture)])
def test_other_texts_and_endings_lose_no_row_and_prune(lake: Lake, every: int) -> None:
    pruned = set()
    for operator, text in list(product(TEXT_OPERATORS, SOUGHT))[::every]:
        several = f"('{text}', 'b')" if "in" in operator.split("~")[0][-2:] else f"'{text}'"
        condition = f"s {operator} {several}"
        found, extents = asked(lake, condition, prune=True)
        assert found == asked(lake, condition, prune=False)[0], condition
        assert asked(lake, f"not({condition})", prune=True)[0] == asked(lake, f"not({condition})", prune=False)[0]
        pruned |= {operator} if extents < len(EXTENTS) else set()
    assert pruned >= {"==", "endswith", "contains"}
    assert every > 1 or pruned >= {"!=", "!in", "endswith_cs", "!contains", "!has", "!startswith", "has_cs"}


def test_patterns_whatever_the_case_lose_no_row_to_letters_that_engines_have_other_small_ones_of(lake: Lake) -> None:
    likes = [f"s ilike '{form}'" for form in ("{}", "{}%", "%{}", "%{}%", "_{}%")]
    small = ["lower(s) = lower('{}')", "lower(s) = '{}'", "lower(s) in ('{}', 'ab')", "lower(s) like '%{}%'"]
    for sought, form in product((*SOUGHT, "i\u0307i"), (*likes, *small)):
        text = f"select id from t where {form.format(sought)}"
        found, wanted = (session.run(lake, text, engine="local", prune=prune).to_arrow() for prune in (True, False))
        assert sorted(found["id"].to_pylist()) == sorted(wanted["id"].to_pylist()), text


@pytest.mark.parametrize(
    ("condition", "extents"),
    [
        ("s != 'a'", 10),
        ("s != ''", 9),  # a null is an empty text
        ("s !in ('a', 'b')", 8),
        ("n != 1", 8),
        ("n !in (1, 2)", 5),
        ("r != 0.5", 8),
        ("b != true", 7),
        ("s endswith 'y'", 3),  # letters of other alphabets may be any
        ("s hasprefix 'ab'", 3),
        ("s hassuffix 'y'", 3),
        ("s has_any ('x y', 'zz')", 3),
        ("s has_all ('x', 'y')", 3),
        ("s has_all ('ab', 'zz')", 0),
        ("s =~ 'X Y'", 3),
        ("s in~ ('X Y', 'AB')", 5),
        ("s =~ 'ki'", 11),  # engines take other letters for these
        ("d.x != 'a'", 11),
        ("isnull(n) or n != 2", 8),
    ],
)
def test_other_values_leave_out_extents_that_have_nothing_else(lake: Lake, condition: str, extents: int) -> None:
    found, read = asked(lake, condition, prune=True)
    assert (found, read) == (asked(lake, condition, prune=False)[0], extents)


def test_patterns_have_every_letter_of_a_case() -> None:
    alike = defaultdict(set)
    for letter in map(chr, (*range(0xD800), *range(0xE000, sys.maxunicode + 1))):
        alike[fold(letter)].add(letter)
    for letters in (each for each in alike.values() if len(each) > 1):
        assert {in_any_case(letter) for letter in letters} == {f"[{''.join(sorted(letters))}]"}


@examples(200)
@given(st.lists(st.sampled_from((0, 1, 2, 1.0, 0.5, -0.0, 2**53)), min_size=1, max_size=4), st.data())
def test_a_set_that_has_all_values_is_proven_and_no_other(held: list[float], data: st.DataObject) -> None:
    values = tuple(data.draw(st.lists(st.sampled_from((0, 1, 2, 0.5, 3, -1, True)), max_size=5)))
    known = ColumnStats(nulls=0, low=min(held), high=max(held), distinct=tuple(sorted(set(held))))
    if not may_match(Not(InSet("x", values)), Stats(len(held), {"x": known})):
        assert set(held) <= {value for value in values if value is not True}
