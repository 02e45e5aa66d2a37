"""Read keys and values out of a text: what ``parse-kv`` needs where one regular expression does not do.

Each is a function of one row's texts. Spaces around keys and values do not count, and of a key that comes twice the
first value does. It does not run regular expressions of a query's author: an engine does, and hands over what it found.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from tidelake.query.functions.declaration import Function, declare


def matched_value(keys: str, values: str, wanted: str) -> str:
    """Return the value beside the first key that is the wanted one."""
    for key, value in zip(json.loads(keys), json.loads(values), strict=False):
        if str(key).strip() == wanted:
            return str(value).strip()
    return ""


def quoted_value(text: str, options: str) -> str:
    """Return a key's value in a text whose keys and values may stand in quotes.

    Options are the key, the two delimiters, the pairs of quotes, the signs that escape, and the keys before which alone
    a value ends; without delimiters any sign that is neither a letter nor a digit is one.
    """
    wanted, pair, between, quotes, escapes, keys = json.loads(options)
    reader = _Reader(text, [(each[0], each[-1]) for each in quotes if each], escapes)
    return reader.delimited(wanted, pair, between, keys) if pair and between else reader.plain(wanted)


@dataclass(slots=True)
class _Reader:
    text: str
    quotes: Sequence[tuple[str, str]]
    escapes: str
    at: int = 0

    def delimited(self, wanted: str, pair: str, between: str, keys: Sequence[str]) -> str:
        while self.at < len(self.text):
            key = self.word(pair, between)
            if not self.text.startswith(between, self.at):
                self.at += len(pair)
                continue
            self.at += len(between)
            value = self.value(pair, between, keys)
            if key == wanted:
                return value
            self.at += len(pair)
        return ""

    def value(self, pair: str, between: str, keys: Sequence[str]) -> str:
        """Read a value up to the end of its pair; where keys are given, up to a pair that begins with one of them."""
        start = self.at
        found = self.word(pair)
        if not keys or self.text[start : self.at].strip() != found:
            return found
        while self.at < len(self.text) and not self._key_follows(pair, between, keys):
            self.at += 1
            while self.at < len(self.text) and not self._ends((pair,)):
                self.at += 1
        return self.text[start : self.at].strip()

    def _key_follows(self, pair: str, between: str, keys: Sequence[str]) -> bool:
        ahead = _Reader(self.text, self.quotes, self.escapes, self.at + len(pair))
        return ahead.word(between, pair) in keys and ahead.text.startswith(between, ahead.at)

    def word(self, *ends: str) -> str:
        """Read up to one of some ends; what stands in quotes is read whole, and what follows it is passed over."""
        while self.at < len(self.text) and self.text[self.at].isspace() and not self._ends(ends):
            self.at += 1
        found = self.quoted()
        start = self.at
        while self.at < len(self.text) and not self._ends(ends):
            self.at += 1
        return self.text[start : self.at].strip() if found is None else found

    def quoted(self) -> str | None:
        """Read what stands in quotes, if they open here and close somewhere."""
        closing = next((last for first, last in self.quotes if self.text.startswith(first, self.at)), None)
        if closing is None:
            return None
        at, found = self.at + 1, ""
        while at < len(self.text) and self.text[at] != closing:
            at += self.text[at] in self.escapes and at + 1 < len(self.text)
            found += self.text[at]
            at += 1
        if at >= len(self.text):
            return None
        self.at = at + 1
        return found

    def plain(self, wanted: str) -> str:
        """Read what follows a key that stands for itself, and the signs after it."""
        while (found := self.text.find(wanted, self.at)) >= 0:
            self.at = found + len(wanted)
            before, after = self.text[:found][-1:], self.text[self.at : self.at + 1]
            if before.isalnum() or after.isalnum():
                continue
            self.at += any(after == last for _, last in self.quotes) and any(
                before == first for first, _ in self.quotes
            )
            while self.at < len(self.text) and not self.text[self.at].isalnum():
                if (inside := self.quoted()) is not None:
                    return inside.strip()
                self.at += 1
            start = self.at
            while self.at < len(self.text) and self.text[self.at].isalnum():
                self.at += 1
            return self.text[start : self.at]
        return ""

    def _ends(self, ends: Sequence[str]) -> bool:
        return any(self.text.startswith(end, self.at) for end in ends)


FUNCTIONS: tuple[Function, ...] = (
    declare("kv_matched", returns="text", python=matched_value, arity=3),
    declare("kv_quoted", returns="text", python=quoted_value, arity=2),
)
