"""Hold the portable functions that look into texts further than engines agree on: places, counts, versions, hashes.

Each is a function of one row's texts; options travel as one JSON array. It does not know engines.
"""

from __future__ import annotations

import json
import re
import struct
from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from typing import Any

_MASK = (1 << 64) - 1
_PRIMES = (
    11400714785074694791, 14029467366897019727, 1609587929392839161, 9650029242287828579, 2870177450012600261,
)  # fmt: skip
_pattern = lru_cache(maxsize=256)(re.compile)


def indexof(text: str, sought: str, options: str) -> int | None:
    """Find the n-th place of a text within so many letters from a start, which may be counted from the end."""
    start, length, occurrence = (int(each) for each in json.loads(options))
    if occurrence < 1 or length < -1:
        return None
    start = max(0, len(text) + start) if start < 0 else start
    for _ in range(occurrence):
        at = text.find(sought, start, len(text) if length < 0 else start + length)
        if at < 0 or start > len(text):
            return -1
        start = at + 1
    return start - 1


def indexof_regex(text: str, sought: str, options: str) -> int | None:
    """Find the n-th place that a pattern matches; matches do not overlap."""
    start, length, occurrence = (int(each) for each in json.loads(options))
    if start < 0 or occurrence < 1 or length < -1:
        return None
    found = -1
    for _ in range(occurrence):
        match = _pattern(sought).search(text, start, len(text) if length < 0 else start + length)
        if match is None:
            return -1
        found, start = match.start(), max(match.end(), match.start() + 1)
    return found


def countof(text: str, sought: str) -> int:
    """Count where a text begins within another, also where one begins within the last."""
    if not sought:
        return 0
    count, at = 0, text.find(sought)
    while at >= 0:
        count, at = count + 1, text.find(sought, at + 1)
    return count


def version(text: str) -> str:
    """Give up to four parts as one number, eight digits a part."""
    parts = [int(part) for part in text.strip().split(".")]
    if not 1 <= len(parts) <= 4 or any(not 0 <= part < 10**8 for part in parts):
        raise ValueError("not a version")
    return str(sum(part * 10 ** (8 * (3 - at)) for at, part in enumerate(parts)))


def hashed(text: str, kind: str, divisor: str | None) -> int | None:
    """Give xxhash64 of a text's bytes, or of the eight of a number, or what a division leaves of it."""
    match kind:
        case "long":
            data = int(text).to_bytes(8, "little", signed=True)
        case "real":
            data = struct.pack("<d", float(text))
        case _:
            data = text.encode()
    found = _xxhash64(data)
    if divisor is not None:
        return found % int(divisor) if int(divisor) > 0 else None
    return found - (1 << 64) if found >> 63 else found


def _xxhash64(data: bytes) -> int:
    first, second, third, fourth, fifth = _PRIMES
    size, at = len(data), 0
    if size >= 32:
        lanes = [(first + second) & _MASK, second, 0, -first & _MASK]
        for at in range(0, size - 31, 32):
            lanes = [_mixed(lane, _word(data, at + 8 * number, 8)) for number, lane in enumerate(lanes)]
        at += 32
        total = sum(_turned(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True)) & _MASK
        for lane in lanes:
            total = ((total ^ _mixed(0, lane)) * first + fourth) & _MASK
    else:
        total = fifth
    total = (total + size) & _MASK
    while at + 8 <= size:
        total, at = (_turned(total ^ _mixed(0, _word(data, at, 8)), 27) * first + fourth) & _MASK, at + 8
    if at + 4 <= size:
        total, at = (_turned(total ^ (_word(data, at, 4) * first & _MASK), 23) * second + third) & _MASK, at + 4
    for byte in data[at:]:
        total = _turned(total ^ (byte * fifth & _MASK), 11) * first & _MASK
    for shift, prime in ((33, second), (29, third), (32, 1)):
        total = (total ^ (total >> shift)) * prime & _MASK
    return total


def _word(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(data[at : at + size], "little")


def _turned(value: int, by: int) -> int:
    return ((value << by) | (value >> (64 - by))) & _MASK


def _mixed(lane: int, value: int) -> int:
    return _turned((lane + value * _PRIMES[1]) & _MASK, 31) * _PRIMES[0] & _MASK


def bag_without(bag: str, keys: str) -> str:
    """Leave out keys of a bag, also nested ones, which are written as paths."""
    found = json.loads(bag)
    for key in json.loads(keys):
        *before, last = str(key)[2:].split(".") if str(key).startswith("$.") else [str(key)]
        at = found
        for step in before:
            at = at.get(step) if isinstance(at, dict) else None
        if isinstance(at, dict):
            at.pop(last, None)
    return json.dumps(found, ensure_ascii=False)


def replace_strings(text: str, olds: str, news: str) -> str:
    """Replace texts by others in one pass; of several that begin at a place the first of the list counts.

    What is to become no text is found as well, and stays.
    """
    held, given = json.loads(olds), json.loads(news)
    given = given if isinstance(given, list) else [given] * len(held)
    pairs = {
        old: new if isinstance(new, str) else old
        for old, new in reversed(list(zip(held, given, strict=False)))
        if isinstance(old, str) and old
    }
    ordered = [old for old in held if old in pairs] if pairs else []
    if not ordered:
        return text
    found: str = _pattern("|".join(re.escape(old) for old in ordered)).sub(lambda match: pairs[match[0]], text)
    return found


def has_any_index(text: str, words: str) -> int:
    """Find the first word of a list that a text has as a whole term, whatever its case."""
    for at, word in enumerate(json.loads(words)):
        before, after = (
            (r"(?<![^\W_])" if str(word)[:1].isalnum() else ""),
            (r"(?![^\W_])" if str(word)[-1:].isalnum() else ""),
        )
        if _pattern(f"(?i){before}{re.escape(str(word))}{after}").search(text):
            return at
    return -1


def reduced(texts: str, options: str) -> str:
    """Group texts that are alike, as ``[pattern, count, first text]``, the largest group first.

    Words are parted by what is no letter or digit, and by some characters. From the last place to the first, a word is
    a star where a share of all texts differs in that place alone and some word stays; a star takes in what parts it
    from its neighbours.
    """
    held, (share, characters) = json.loads(texts), json.loads(options)
    parting = _pattern(f"([^\\w]|_|[{re.escape(characters)}])" if characters else "([^\\w]|_)")
    rows = [tuple(part for part in parting.split(each) if part) for each in held]
    least = max(share * len(held), 2)
    for place in range(max(map(len, rows), default=0) - 1, -1, -1):
        alike: dict[tuple[str, ...], Counter[str]] = {}
        rest = [(*row[:place], "", *row[place + 1 :]) if place < len(row) else () for row in rows]
        for row, key in zip(rows, rest, strict=True):
            if key and not parting.fullmatch(row[place]):
                alike.setdefault(key, Counter())[row[place]] += 1
        rows = [
            (*row[:place], "*", *row[place + 1 :])
            if (words := alike.get(key, Counter())) and len(words) > 1 and words.total() >= least and _has_word(key)
            else row
            for row, key in zip(rows, rest, strict=True)
        ]
    groups: dict[str, list[Any]] = {}
    for each, row in zip(held, rows, strict=True):
        pattern = "".join(word for at, word in enumerate(row) if not _beside_star(row, at, parting))
        groups.setdefault(re.sub(r"\*+", "*", pattern), [pattern, 0, each])[1] += 1
    found = [[pattern, count, first] for pattern, (_, count, first) in groups.items()]
    return json.dumps(sorted(found, key=lambda group: -group[1]), ensure_ascii=False)


def _has_word(words: tuple[str, ...]) -> bool:
    return any(any(map(str.isalnum, word)) for word in words)


def _beside_star(row: tuple[str, ...], at: int, parting: re.Pattern[str]) -> bool:
    return parting.fullmatch(row[at]) is not None and "*" in (*row[max(at - 1, 0) : at], *row[at + 1 : at + 2])


# name, function, how many texts it takes, what it gives
TEXT: tuple[tuple[str, Callable[..., Any], int, str], ...] = (
    ("tide_indexof_from", indexof, 3, "long"),
    ("tide_indexof_regex", indexof_regex, 3, "long"),
    ("tide_countof_plain", countof, 2, "long"),
    ("tide_version_text", version, 1, "text"),
    ("tide_hashed", hashed, 3, "long"),
    ("tide_reduced", reduced, 2, "json"),
    ("tide_replace_strings", replace_strings, 3, "text"),
    ("tide_has_any_index", has_any_index, 2, "long"),
    ("tide_bag_without", bag_without, 2, "json"),
)
