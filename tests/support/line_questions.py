"""Make lines of logs that look for trouble, and questions about them with the answers that plain Python gives.

Lines have numbers with and without zeros before them, words that begin or end with digits, other alphabets, letters
whose case folds oddly, control characters and nothing at all. Needles are cut out of lines, wherever, and changed a
little. It does not ask: whoever has a lake does.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from tidelake.model.predicate import fold

Row: TypeAlias = dict[str, Any]
Passes: TypeAlias = Callable[[Row], bool]

WORDS = ("disk", "Rack", "rack", "retry", "user", "on", "x", "Overheated", "node", "GET", "ERROR", "timeout", "é", "ß")
ODD = (
    *("ſ", "\u212a", "\u0130", "é5", "5é", "日本", "٣", "²", "½", "\U0001f600", "<*>", "\t", "\n", "'", '"', "\\"),
    *("%", "_", "a_1", "1e5", "0x1F", "-7", "007", "9" * 30, "9223372036854775808", "A" * 60 + "1", "\x7f", "--"),
)
GAPS = (" ", " ", " ", ": ", "=", "/", "-", "_", ", ", "", ".", "  ")
FLAVOURS = ("log", "words", "ids", "odd", "few", "numbers")


@dataclass(frozen=True, slots=True)
class Asked:
    """A condition in KQL, and whether a row passes it."""

    text: str
    passes: Passes


def lines(chance: random.Random, flavour: str, count: int) -> list[str | None]:
    """Make lines of one flavour, some of which are not there, or empty."""
    made = [_line(chance, flavour, n) for n in range(count)]
    return [None if chance.random() < 0.02 else "" if chance.random() < 0.01 else line for line in made]


def _line(chance: random.Random, flavour: str, n: int) -> str:
    match flavour:
        case "log":
            kind = chance.randrange(6)
            return (
                f"job {n * 7919 % 100_003} took {n % 17:03d} ms on node{n % 9}",
                f"Overheated disk {chance.randrange(40)} on rack {n % 7}, moved to {chance.choice(WORDS)}",
                f"GET /v{n % 3}/items/{chance.randrange(10**6):x}?page={n % 50} {chance.choice((200, 404))}",
                f"user é{n % 5} said {chance.choice(WORDS)}{chance.choice(ODD)}",
                "plain words alone" if n % 5 else "retry later",
                f"{chance.randrange(10**12)} id{n:05d}X id{n:05d}X rack{n % 4}z",
            )[kind if n % 3 else 0]
        case "words":
            return " ".join(chance.choices(WORDS, k=8)) + (f" {n % 3}" if n % 9 == 0 else "")
        case "ids":
            return f"trace={chance.randrange(2**62)} span={chance.randrange(2**60):x} {chance.choice(WORDS)} {n % 900}"
        case "few":
            return ("started worker 1", "stopped worker 2", "no digits", "Worker3", "33", "worker")[n % 6]
        case "numbers":
            return f"{chance.randrange(1000)}{chance.choice((' ', '.', ','))}{chance.randrange(100):02d} {n}"
        case _:
            pieces = chance.choices((*WORDS, *ODD, str(n), f"{n % 100:04d}"), k=chance.randrange(1, 9))
            return "".join(piece + chance.choice(GAPS) for piece in pieces)


def needle(chance: random.Random, known: Sequence[str | None]) -> str:
    """Cut a needle out of a line, or make one that is likely nowhere."""
    line = chance.choice(known) or ""
    start = chance.randrange(len(line) + 1)
    match chance.randrange(9):
        case 0:
            return chance.choice((*WORDS, *ODD, "0", "1", "00", "7", " ", "node1", "rack 3", "nowhere", "Y", ""))
        case 1 | 2:
            words = re.findall(r"\w+", line)
            return chance.choice(words) if words else line
        case 3:
            words = re.findall(r"\S+", line)
            at = chance.randrange(len(words) + 1)
            return " ".join(words[at : at + chance.randrange(1, 4)])
        case 4:
            return line[start : start + chance.randrange(1, 5)].swapcase()
        case 5:
            cut = line[start : start + chance.randrange(1, 12)]
            return re.sub("[0-9]", lambda _: str(chance.randrange(10)), cut)
        case 6:
            return line if len(line) < 200 else line[:50]
        case 7:
            return line[: chance.randrange(1, 14)].upper()
        case _:
            return line[start : start + chance.randrange(1, 12)]


def _bounded(text: str, term: str, *, left: bool, right: bool) -> bool:
    at = text.find(term)
    while at >= 0:
        end = at + len(term)
        begins = not left or at == 0 or not (term[:1].isalnum() and text[at - 1].isalnum())
        ends = not right or end == len(text) or not (term[-1:].isalnum() and text[end].isalnum())
        if begins and ends:
            return True
        at = text.find(term, at + 1)
    return False


def _has(text: str, term: str) -> bool:
    return _bounded(fold(text), fold(term), left=True, right=True)


def _small(text: str) -> str:
    """Return a text in small letters as engines have them, letter by letter."""
    return "".join("i" if letter == "\u0130" else letter.lower() for letter in text)


# Of a text and what is sought. Nothing is found in a null, which is as an empty text where texts are compared.
OPERATORS: dict[str, Callable[[str, str], bool]] = {
    "has": _has,
    "has_cs": lambda text, sought: _bounded(text, sought, left=True, right=True),
    "hasprefix": lambda text, sought: _bounded(fold(text), fold(sought), left=True, right=False),
    "hassuffix": lambda text, sought: _bounded(fold(text), fold(sought), left=False, right=True),
    "contains": lambda text, sought: fold(sought) in fold(text),
    "contains_cs": lambda text, sought: sought in text,
    "startswith": lambda text, sought: fold(text).startswith(fold(sought)),
    "startswith_cs": lambda text, sought: text.startswith(sought),
    "endswith": lambda text, sought: fold(text).endswith(fold(sought)),
    "endswith_cs": lambda text, sought: text.endswith(sought),
    "==": lambda text, sought: text == sought,
    "=~": lambda text, sought: _small(text) == _small(sought),
}
NEGATIONS = {"==": "!=", "=~": "!~", "in": "!in", "in~": "!in~"}
PATTERNS = (
    "rack [0-9]+",
    "^job",
    "(?i)OVERHEATED|worker",
    "node[0-3]$",
    "id0*7",
    "took 0[01]",
    "[0-9]{5}",
    "disk .* on",
)


def quoted(text: str) -> str:
    """Write a text as KQL does."""
    escapes = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}
    return '"' + "".join(escapes.get(each, each) for each in text) + '"'


def condition(chance: random.Random, known: Sequence[str | None], depth: int = 2) -> Asked:
    """Make a condition on lines and numbers."""
    form = chance.randrange(10) if depth else 0
    if form < 6:
        return _leaf(chance, known)
    if form == 6:
        inner = condition(chance, known, depth - 1)
        return Asked(f"not({inner.text})", lambda row: not inner.passes(row))
    parts = [condition(chance, known, depth - 1) for _ in range(chance.randrange(2, 4))]
    word, every = (" and ", all) if form < 9 else (" or ", any)
    return Asked(
        "(" + word.join(part.text for part in parts) + ")", lambda row: every(part.passes(row) for part in parts)
    )


def _leaf(chance: random.Random, known: Sequence[str | None]) -> Asked:
    kind = chance.randrange(14)
    if kind == 0:
        low = chance.randrange(len(known))
        return Asked(f"n >= {low}", lambda row: row["n"] >= low)
    if kind == 1:
        pattern = chance.choice(PATTERNS)
        compiled = re.compile(pattern.replace("$", r"\Z"))
        return Asked(
            f"line matches regex {quoted(pattern)}",
            lambda row: row["line"] is not None and bool(compiled.search(row["line"])),
        )
    if kind == 2:
        return _of_several(chance, known)
    if kind == 3:
        return chance.choice((
            Asked("isempty(line)", lambda row: not row["line"]),
            Asked("isnotempty(line)", lambda row: bool(row["line"])),
        ))  # fmt: skip
    name, sought = chance.choice(list(OPERATORS)), needle(chance, known)
    holds = OPERATORS[name]

    def passes(row: Row) -> bool:
        return holds(row["line"] or "", sought) and (row["line"] is not None or name in ("==", "=~"))

    if chance.random() < 0.25:
        return Asked(f"line {NEGATIONS.get(name, f'!{name}')} {quoted(sought)}", lambda row: not passes(row))
    return Asked(f"line {name} {quoted(sought)}", passes)


def _of_several(chance: random.Random, known: Sequence[str | None]) -> Asked:
    several = [needle(chance, known) for _ in range(chance.randrange(1, 20 if chance.random() < 0.2 else 4))]
    small = {_small(each) for each in several}
    tests: dict[str, Callable[[str | None], bool]] = {
        "has_any": lambda text: text is not None and any(_has(text, each) for each in several),
        "has_all": lambda text: text is not None and all(_has(text, each) for each in several),
        "in": lambda text: (text or "") in several,
        "!in": lambda text: (text or "") not in several,
        "in~": lambda text: _small(text or "") in small,
        "!in~": lambda text: _small(text or "") not in small,
    }
    name = chance.choice(list(tests))
    return Asked(f"line {name} ({', '.join(map(quoted, several))})", lambda row: tests[name](row["line"]))


def sql_condition(chance: random.Random, known: Sequence[str | None], depth: int = 2) -> str:
    """Make a condition of SQL that DuckDB has, too."""
    form = chance.randrange(10) if depth else 0
    if form >= 6:
        parts = [sql_condition(chance, known, depth - 1) for _ in range(2)]
        word = "and" if form < 8 else "or"
        return f"not ({parts[0]})" if form == 9 else f"({parts[0]} {word} {parts[1]})"
    sought = needle(chance, known)

    def literal(text: str) -> str:
        return "'" + re.sub(r"['\\]", "", text) + "'"  # which engines write in other ways

    pattern = sought
    pattern = chance.choice((f"%{pattern}%", f"{pattern}%", f"%{pattern}", pattern, f"%{pattern[:3]}%{pattern[-2:]}%"))
    return chance.choice(
        (
            f"line like {literal(pattern)}",
            f"line not like {literal(pattern)}",
            f"line ilike {literal(pattern)}",
            f"line like {literal(pattern.replace('%', '!%'))} escape '!'",
            f"line = {literal(sought)}",
            f"line <> {literal(sought)}",
            f"line in ({literal(sought)}, {literal(needle(chance, known))})",
            f"line not in ({literal(sought)}, {literal(needle(chance, known))})",
            f"line > {literal(sought)}",
            "line is null",
            "line is not null",
            f"contains(line, {literal(sought)})",
            f"starts_with(line, {literal(sought)})",
            f"length(line) > {chance.randrange(60)}",
            f"n < {chance.randrange(len(known))}",
        )
    )
