"""Cut text into tokens: lower-cased runs of two or more ASCII letters and digits.

``tokenize`` is the rule, ``kernels.TokenTable`` the same rule at speed. ``runs_of`` says what a search needs of the
tokens. It does not keep tokens, nor judge by them: see ``pruning.outcomes``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

SHORTEST = 2  # single characters are everywhere: keeping them prunes nothing
TOKEN_SET_CAP = 10_000  # exact tokens kept per extent and column
TOKEN_LENGTH_CAP = 256  # characters: one long word must not bloat every manifest

DIGITS = frozenset("0123456789")

_RUN = re.compile(r"[0-9A-Za-z]+")


def tokenize(text: str) -> list[str]:
    """Return the tokens of one text, in order, repeats and all."""
    return [run.lower() for run in _RUN.findall(text) if len(run) >= SHORTEST]


def has_digit(token: str) -> bool:
    """Whether a token holds a digit."""
    return not DIGITS.isdisjoint(token)


@dataclass(frozen=True, slots=True)
class Run:
    """A run of ASCII letters and digits inside a needle, lower-cased, and whether each end is delimited."""

    text: str
    starts: bool
    ends: bool

    @property
    def is_whole(self) -> bool:
        """Whether it is a word of its own, not perhaps a part of one."""
        return self.starts and self.ends


def runs_of(needle: str, *, anchored: bool = False, whole: bool = False) -> list[Run]:
    """Return the runs of a needle that a matching text must hold, each of two or more characters.

    A run that touches the needle's edge may be part of a longer word in the text, so that end is not delimited; unless
    the needle is anchored to the text's start, or must match whole words.
    """
    return list(_runs_of(needle, anchored=anchored, whole=whole))


@lru_cache(maxsize=256)  # asked of every block
def _runs_of(needle: str, *, anchored: bool, whole: bool) -> tuple[Run, ...]:
    return tuple(
        Run(
            match[0].lower(),
            starts=match.start() > 0 or anchored or whole,
            ends=match.end() < len(needle) or whole,
        )
        for match in _RUN.finditer(needle)
        if match.end() - match.start() >= SHORTEST
    )
