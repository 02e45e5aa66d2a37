"""Show that what a regular expression is said to need is in every text that it matches."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.strategies import examples
from tidelake.kernels.tokens import Run, tokenize
from tidelake.model.predicate import StringMatches
from tidelake.model.schema import Schema
from tidelake.pruning.collector import collect
from tidelake.pruning.outcomes import TRUE, may_match, outcomes
from tidelake.pruning.required_texts import NOTHING, Needs, needs_of

SCHEMA = Schema.of({"s": "string"})
PIECES = (
    *("timeout", "Error", "key", "status", "500", "a", "k", "s", " ", "-", "_", "é", "ſ", "\u212a", ".", "^", "$", "|"),
    *(r"\b", r"\B", r"\s", r"\d", r"\w", r"\W", r"\.", r"\-", r"\n", r"\A", r"\z", r"\x41", r"\pL", r"\p{Greek}"),
    *("*", "+", "?", "{2}", "{0,3}", "{1,}", "+?", "*?", "(", ")", "(?:", "(?i)", "(?i:", "(?-i)", "(?P<n>", "(?s)"),
    *("[ab]", "[^a]", "[ ,-]", r"[\s:]", "[a-z]", "[[:alpha:]]", "[]a]", "[ -~]", r"[\W_]", "{", "}", "]"),
)
WORDS = (
    "timeout",
    "Timeouts",
    "ERROR",
    "key",
    "\u212aEY",
    "ſtatuſ",
    "status",
    "500",
    "aa",
    "kk",
    "A",
    "é",
    "_",
    "-",
    " ",
    "\n",
)


def run(text: str, starts: bool = False, ends: bool = False) -> Run:
    return Run(text, starts, ends)


@pytest.mark.parametrize(
    ("pattern", "needs"),
    [
        ("timeout", Needs((run("timeout"),))),
        ("^GET /api", Needs((run("get", True, True), run("api", True)))),
        (r"\btimeout\b", Needs((run("timeout", True, True),))),
        (r"status=\d+ time", Needs((run("status", ends=True), run("time", True)))),
        (r"user\s+(\w+)@site\.com$", Needs((run("user", ends=True), run("site", True, True), run("com", True, True)))),
        ("colou?r", Needs((run("colo"),))),
        ("ab+cd", Needs((run("ab"), run("bcd")))),
        ("(?:ab){2,3}cd*", Needs((run("ab"),))),
        ("(?:ab)?cd", Needs((run("cd"),))),
        ("timeout|refused", Needs((), ((Needs((run("timeout"),)), Needs((run("refused"),))),))),
        ("(?i)timeout|Key", Needs((), ((Needs((run("timeout"),)), Needs((run("ey"),))),))),
        ("ab(cd|ef)gh", Needs((run("ab"), run("gh")), ((Needs((run("cd"),)), Needs((run("ef"),))),))),
        ("ab(cd|.)", Needs((run("ab"),))),
        ("(?i)disk", Needs((run("di"),))),
        ("(?i:disk) disk", Needs((run("di"), run("disk", True)))),
        ("foo[ :-]bar", Needs((run("foo", ends=True), run("bar", True)))),
        ("foo[a-z]bar", Needs((run("foo"), run("bar")))),
        ("[[:alpha:]]timeout", Needs((run("timeout"),))),
        ("a|timeout", NOTHING),
        (r"\Qa.b\E timeout", NOTHING),
        (r"\C timeout", NOTHING),
        ("timeout{,2}", NOTHING),
        ("(" * 60 + "timeout" + ")" * 60, NOTHING),
    ],
)  # fmt: skip
def test_needs_of_finds_what_every_match_holds(pattern: str, needs: Needs) -> None:
    StringMatches("s", pattern)
    assert needs_of(pattern) == needs


def holds(needs: Needs, text: str) -> bool:
    """Judge by the tokens of one text, as statistics judge by those of many."""
    tokens = "\n" + "\n".join(tokenize(text)) + "\n"
    runs = all(("\n" * each.starts + each.text + "\n" * each.ends) in tokens for each in needs.runs)
    return runs and all(any(holds(side, text) for side in choice) for choice in needs.choices)


def is_valid(pattern: str) -> bool:
    try:
        pc.match_substring_regex(pa.array([""]), pattern)
    except pa.ArrowInvalid:
        return False
    return True


TEXTS = st.lists(st.sampled_from(WORDS), max_size=6).map("".join)
REGEXES = st.lists(st.sampled_from(PIECES), min_size=1, max_size=8).map("".join).filter(is_valid)


@examples(700)
@given(REGEXES, st.lists(TEXTS, min_size=1, max_size=30))
def test_needs_of_never_asks_for_more_than_a_match_holds(pattern: str, texts: list[str]) -> None:
    matched = pc.match_substring_regex(pa.array(texts), pattern).to_pylist()
    for text, found in zip(texts, matched, strict=True):
        assert not found or holds(needs_of(pattern), text), (pattern, text)


@examples(60)
@given(st.lists(REGEXES, min_size=5, max_size=20), st.lists(TEXTS, min_size=1, max_size=20), st.booleans())
def test_statistics_keep_every_match_of_a_regex(patterns: list[str], texts: list[str], many: bool) -> None:
    texts = [*texts, *(f"x{number}y" for number in range(80))] if many else texts  # past the cap of exact judging
    batch = pa.record_batch({"s": texts})
    (block,), extent = collect([batch], SCHEMA)
    for pattern in patterns:
        found = set(pc.match_substring_regex(batch.column(0), pattern).to_pylist())
        for stats in (block, extent):
            may = outcomes(StringMatches("s", pattern), stats)
            assert not (True in found and not may & TRUE), pattern
            assert not (False in found and may == TRUE), pattern


def test_a_regex_prunes_what_cannot_match() -> None:
    many = [f"request {number} took 5 ms" for number in range(500)]
    few = ["GET", "PUT", "POST"]
    for texts, judged in (
        (many, {"timeout": False, "request 1": True, r"\btook\b": True, r"\bok\b": False, "(?i)REQUEST|x1": True}),
        (few, {"^P": True, "^D": False, "^P..T$": True, "^P..S$": False}),
    ):
        _, extent = collect([pa.record_batch({"s": texts})], SCHEMA)
        assert {pattern: may_match(StringMatches("s", pattern), extent) for pattern in judged} == judged
