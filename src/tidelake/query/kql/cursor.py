"""Walk along the tokens of a KQL text, and say where it went wrong.

Nesting is bounded here, so that no text can exhaust the stack. It does not know the grammar.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from tidelake.errors import QueryError
from tidelake.model.lexer import did_you_mean
from tidelake.query.kql.lexer import Token, cut
from tidelake.query.kql.literals import text_of
from tidelake.query.kql.mistakes import error_at

MAX_NESTING = 80  # brackets within brackets: deeper than people write, and well within Python's stack

Item = TypeVar("Item")


class Cursor:
    """The tokens of a text and a place among them."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = cut(text)
        self.place = 0
        self.depth = 0
        self.in_search = False

    @property
    def token(self) -> Token:
        return self.tokens[self.place]

    def peek(self, ahead: int = 1) -> Token:
        return self.tokens[min(self.place + ahead, len(self.tokens) - 1)]

    def next(self) -> Token:
        token = self.token
        self.place = min(self.place + 1, len(self.tokens) - 1)
        return token

    def sign(self, *signs: str) -> bool:
        """Step over a sign if it is next."""
        if self.token.is_sign(*signs):
            self.next()
            return True
        return False

    def word(self, *words: str) -> bool:
        """Step over a word if it is next."""
        if self.token.is_word(*words):
            self.next()
            return True
        return False

    def expect_sign(self, sign: str, where: str) -> Token:
        if not self.token.is_sign(sign):
            raise self.error(f"expected '{sign}' {where}, found {self.token}")
        return self.next()

    def expect_word(self, word: str, where: str) -> Token:
        if not self.token.is_word(word):
            raise self.error(f"expected '{word}' {where}, found {self.token}")
        return self.next()

    def name(self, what: str) -> str:
        """Step over a plain or a bracketed name."""
        if self.token.kind == "name":
            return self.next().text
        if self.is_bracketed_name():
            text = text_of(self.peek().text)
            self.place += 3
            return text
        raise self.error(f"expected {what}, found {self.token}")

    def is_bracketed_name(self) -> bool:
        return self.token.is_sign("[") and self.peek().kind == "string" and self.peek(2).is_sign("]")

    def is_name(self) -> bool:
        return self.token.kind == "name" or self.is_bracketed_name()

    def dashed_word(self) -> tuple[str, int]:
        """Look at a word with dashes, such as ``project-away``, and say how many tokens it takes."""
        word, count = self.token.text, 1
        while (
            self.peek(count).is_sign("-")
            and self.peek(count + 1).kind == "name"
            and not self.peek(count).spaced
            and not self.peek(count + 1).spaced
        ):
            word, count = f"{word}-{self.peek(count + 1).text}", count + 2
        return word, count

    def several(self, item: Callable[[], Item]) -> tuple[Item, ...]:
        """Read one or more items with commas between them."""
        found = [item()]
        while self.sign(","):
            found.append(item())
        return tuple(found)

    @contextmanager
    def nested(self) -> Iterator[None]:
        """Go one level deeper; refuse to go too deep."""
        self.depth += 1
        if self.depth > MAX_NESTING:
            raise self.error("nested too deeply", kind="too_deep")
        try:
            yield
        finally:
            self.depth -= 1

    def error(self, message: str, *, at: int | None = None, kind: str = "syntax") -> QueryError:
        return error_at(self.text, self.token.at if at is None else at, message, kind=kind)

    def unknown(self, what: str, word: str, known: Iterable[str], *, at: int) -> QueryError:
        return self.error(f"unknown {what} '{word}'{did_you_mean(word, known)}", at=at)
