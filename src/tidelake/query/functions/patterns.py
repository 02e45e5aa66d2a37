"""Write text searches and time formats as each engine's patterns.

A term is a run that no letter or digit touches; case does not count unless told. It does not search.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

from tidelake.model.predicate import fold

LETTER = r"[\p{L}\p{N}]"
EDGE_BEFORE = r"(?:^|[^\p{L}\p{N}])"
EDGE_AFTER = r"(?:$|[^\p{L}\p{N}])"
_SIGNS = {"ω": "\u2126", "å": "\u212b", "θ": "ϴ", "ß": "ẞ"}  # capitals that are not the capitals of their small letters
MAX_WAYS = 32  # ways to read one path: five dots in it; of longer ones, the longest keys and the fully nested way

_NAMED_GROUP = re.compile(r"\\u[0-9A-Fa-f]{4}|\\U[0-9A-Fa-f]{8}|\\.|\(\?P?<[A-Za-z_]\w*>", re.DOTALL)
_INDEX = re.compile(r"\[(\d{1,9})\]$")
TIME_PART = re.compile(r"yyyy|yy|y|MM|M|dd|d|HH|H|hh|h|mm|m|ss|s|f{1,7}|F{1,7}|tt|.", re.DOTALL)


def escaped(words: str) -> str:
    """Return a pattern that matches a text as it stands, in every engine's dialect."""
    return re.sub(r"([\\.^$|?*+()\[\]{}])", r"\\\1", words)


def in_any_case(words: str) -> str:
    """Return a pattern that matches a text whatever its case, by the meaning that scans have: see ``fold``.

    Engines each have their own: for one the Kelvin sign is a k, for another a dotted capital I begins with an i.
    """
    return "".join(map(_letters, words))


def _letters(letter: str) -> str:
    small = fold(letter)
    near = {letter, small, letter.upper(), letter.title(), small.upper(), _SIGNS.get(small, small)}
    alike = sorted(each for each in near if len(each) == 1 and fold(each) == small)
    return f"[{''.join(alike)}]" if len(alike) > 1 else escaped(letter)


def duckdb_text(text: str) -> str:
    """Write a text as a literal of DuckDB's."""
    return "'" + text.replace("'", "''") + "'"


def spark_text(text: str) -> str:
    """Write a text as a literal of Spark's."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def plain_groups(pattern: str) -> str:
    """Return a pattern whose groups have no names, for engines write those differently; their numbers stay.

    A character that is written by its number, as ``\\u00e9``, is written as all engines read it.
    """

    def plain(match: re.Match[str]) -> str:
        if match[0][:2] in ("\\u", "\\U") and len(match[0]) > 2:
            return f"\\x{{{match[0][2:].lstrip('0') or '0'}}}"
        return match[0] if match[0].startswith("\\") else "("

    return _NAMED_GROUP.sub(plain, pattern)


def term_pattern(term: str, *, cased: bool = False, prefix: bool = False, suffix: bool = False) -> str:
    """Return the pattern that finds a whole term, or one that begins or ends so."""
    before = EDGE_BEFORE if term[:1].isalnum() and not suffix else ""
    after = EDGE_AFTER if term[-1:].isalnum() and not prefix else ""
    return f"{before}{escaped(term) if cased else in_any_case(term)}{after}"


def path_ways(path: str) -> list[list[str | int]]:
    """Return the ways to walk a dynamic path, in the order in which they count: the longest key first."""
    ways = list(islice(_ways(path), MAX_WAYS + 1))
    if len(ways) > MAX_WAYS:
        return [*ways[: MAX_WAYS - 1], _nested(path)]
    return ways


def _nested(path: str) -> list[str | int]:
    steps: list[str | int] = []
    for part in path.split("."):
        indexes: list[int] = []
        while match := _INDEX.search(part):
            indexes.insert(0, int(match[1]))
            part = part[: match.start()]
        steps += [*([part] if part else []), *indexes]
    return steps


def _ways(path: str) -> Iterator[list[str | int]]:
    yield from _own_ways(path)
    at = path.rfind(".")
    while at > 0:
        for own in _own_ways(path[:at]):
            for rest in _ways(path[at + 1 :]):
                yield [*own, *rest]
        at = path.rfind(".", 0, at)


def _own_ways(key: str) -> Iterator[list[str | int]]:
    match = _INDEX.search(key)
    if match is None:
        yield [key]
        return
    before = key[: match.start()]
    if not before:
        yield [int(match[1])]
        return
    for way in _ways(before):
        yield [*way, int(match[1])]


def strftime_of(pattern: str) -> str | None:
    """Return KQL's time format as strftime's, or None if it has no equal there."""
    parts = {
        "yyyy": "%Y", "yy": "%y", "MM": "%m", "M": "%-m", "dd": "%d", "d": "%-d", "HH": "%H", "H": "%-H", "hh": "%I",
        "h": "%-I", "mm": "%M", "m": "%-M", "ss": "%S", "s": "%-S", "fff": "%g", "ffffff": "%f",
        "fffffff": "%f0", "tt": "%p",
    }  # fmt: skip
    return _translated(pattern, parts, lambda letter: letter.replace("%", "%%"))


def java_format_of(pattern: str) -> str | None:
    """Return KQL's time format as Java's, or None if it has no equal there."""
    parts = {
        "yyyy": "yyyy", "yy": "yy", "MM": "MM", "M": "M", "dd": "dd", "d": "d", "HH": "HH", "H": "H", "hh": "hh",
        "h": "h", "mm": "mm", "m": "m", "ss": "ss", "s": "s", "fff": "SSS", "ffffff": "SSSSSS",
        "fffffff": "SSSSSS'0'", "tt": "a",
    }  # fmt: skip
    start, end = "\x01", "\x02"  # of what stands for itself; neighbours share their quotes
    found = _translated(
        pattern, parts, lambda a: "''" if a == "'" else f"{start}{a}{end}" if a.isalpha() or a in "[]{}#" else a
    )
    return found and found.replace(end + start, "").replace(start, "'").replace(end, "'")


def _translated(pattern: str, parts: dict[str, str], plain: object) -> str | None:
    out: list[str] = []
    for piece in TIME_PART.findall(pattern):
        if piece in parts:
            out.append(parts[piece])
        elif piece[0] in "fFy":
            return None
        else:
            assert callable(plain)
            out.append(plain(piece))
    return "".join(out)
