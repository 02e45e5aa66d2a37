"""Find a term, a part, a beginning or a match in every text of a column at once.

The meaning is that of ``predicate.text_holds``, letter for letter, and is tested against it. Bytes are searched in
place, compiled: two rare bytes of the needle are looked for side by side, which a processor does 64 places at a time,
and only where both are found are the others compared. The first version of that loop was 1.5 to 11 times as fast as
RE2 on 65,536 log lines of 100 bytes. A needle of ASCII letters needs no more than ASCII's rule for case, because no
other letter folds to one; a needle with others goes to RE2, as a pattern that spells out what folds to each letter. A
regular expression goes to RE2 too, for the texts that hold the longest word that it needs. It does not know other
predicates.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.model.predicate import StartsWith, StringContains, StringHas, StringMatches, fold, text_holds
from tidelake.pruning.required_texts import needs_of
from tidelake.runtime.compiling import compiled
from tidelake.runtime.readiness import has_loops

TextSearch: TypeAlias = StringHas | StringContains | StartsWith

_Bytes: TypeAlias = npt.NDArray[np.uint8]
_Places: TypeAlias = npt.NDArray[np.int64]

LONGEST_PATTERN = 1000  # letters of a needle given to RE2, whose patterns grow dear; the rest is compared after

_STRIDE = 64  # places looked at together: two of the widest registers there are
_COMMON = b" etaoinsrhldcumfpgwybv0123456789./-_:kxjqz"  # the most common first; other bytes are rarer still
_SAME = np.arange(256, dtype=np.uint8)
_LOWER = np.where((_SAME >= 65) & (_SAME <= 90), _SAME + 32, _SAME).astype(np.uint8)


def search(leaf: TextSearch | StringMatches, texts: pa.Array) -> pa.BooleanArray:
    """Return of each text whether it satisfies a text predicate; null where the text is null."""
    match leaf:
        case StringMatches(name, pattern):
            if not (runs := needs_of(pattern).runs):
                return pc.match_substring_regex(texts, pattern)
            longest = max((run.text for run in runs), key=len)
            return _matched(search(StringContains(name, longest), texts), texts, pattern)
        case StringHas(_, sought):
            cased = False
        case StringContains(_, sought, cased) | StartsWith(_, sought, cased):
            pass
    sought = sought if cased else fold(sought)
    if not (cased or sought.isascii()):
        return _searched_in_any_case(leaf, sought, texts)
    if not has_loops() and sought:
        return _searched_plainly(leaf, sought, texts, cased=cased)
    needle = np.frombuffer(sought.encode("utf-8", "surrogatepass"), dtype=np.uint8)
    lower = _SAME if cased else _LOWER
    data, offsets = _buffers(texts)
    found = np.zeros(len(texts), dtype=np.bool_)
    if isinstance(leaf, StartsWith) or not sought:
        _begin(data, offsets, needle, lower, found)
    else:
        edges = np.array([_is_edge(leaf, sought[0]), _is_edge(leaf, sought[-1])])
        beyond_ascii = edges.any() and data[offsets[0] : offsets[-1]].max(initial=0) > 127
        _find(data, offsets, needle, _probes(needle), lower, edges, _alnum() if beyond_ascii else _ascii_alnum(), found)
    nulls = texts.is_null().to_numpy(zero_copy_only=False) if texts.null_count else None
    return pa.array(found, pa.bool_(), mask=nulls)


def _searched_plainly(leaf: TextSearch, sought: str, texts: pa.Array, *, cased: bool) -> pa.BooleanArray:
    """Search with Arrow's own substring search, or with RE2 where case does not count."""
    if cased:
        begins = isinstance(leaf, StartsWith)
        return pc.starts_with(texts, sought) if begins else pc.match_substring(texts, sought)
    return _searched_by_pattern(leaf, sought, texts, texts.is_valid())


def _searched_in_any_case(leaf: TextSearch, sought: str, texts: pa.Array) -> pa.BooleanArray:
    """Search with RE2; a letter that no text can hold, half of a surrogate pair, is found nowhere."""
    if any("\ud800" <= letter <= "\udfff" for letter in sought):
        return pc.and_kleene(texts.is_null(), pa.scalar(None, pa.bool_()))
    return _searched_by_pattern(leaf, sought, texts, pc.invert(pc.string_is_ascii(texts)))


def _searched_by_pattern(leaf: TextSearch, sought: str, texts: pa.Array, near: pa.BooleanArray) -> pa.BooleanArray:
    """Search the texts for which ``near`` is true with RE2."""
    if texts.null_count:
        near = pc.if_else(texts.is_null(), pa.scalar(None, pa.bool_()), near)
    pattern = "".join(map(_any_case, sought[:LONGEST_PATTERN]))
    found = _matched(near, texts, rf"\A{pattern}" if isinstance(leaf, StartsWith) else pattern)
    if len(sought) > LONGEST_PATTERN:
        held = [text_holds(leaf, text) for text in texts.filter(found).to_pylist()]
        return pc.replace_with_mask(found, found.fill_null(False), pa.array(held, pa.bool_()))
    before = rf"(?:\A|[^{_alnum_class()}])" if _is_edge(leaf, sought[0]) else ""
    after = rf"(?:\z|[^{_alnum_class()}])" if _is_edge(leaf, sought[-1]) else ""
    return _matched(found, texts, before + pattern + after) if before or after else found


def _matched(near: pa.BooleanArray, texts: pa.Array, pattern: str) -> pa.BooleanArray:
    """Match the texts for which ``near`` is true; its false and null answers stay."""
    return pc.replace_with_mask(near, near.fill_null(False), pc.match_substring_regex(texts.filter(near), pattern))


def _is_edge(leaf: TextSearch, letter: str) -> bool:
    return isinstance(leaf, StringHas) and letter.isalnum()


def _probes(needle: _Bytes) -> _Places:
    """Choose the places of the two rarest bytes of a needle."""
    rarest = sorted(range(len(needle)), key=lambda at: _COMMON.find(needle[at]) % 256, reverse=True)
    return np.array([rarest[0], rarest[min(1, len(rarest) - 1)]], dtype=np.int64)


def _buffers(texts: pa.Array) -> tuple[_Bytes, _Places]:
    _, offsets, data = texts.buffers()
    places = np.frombuffer(offsets, dtype=np.int32) if offsets else np.zeros(1, dtype=np.int32)
    window = places[texts.offset : texts.offset + len(texts) + 1].astype(np.int64)
    return np.frombuffer(b"" if data is None else memoryview(data).toreadonly(), dtype=np.uint8), window


def _letters() -> str:
    codes = np.concatenate([np.arange(0xD800), np.arange(0xE000, 0x110000)])
    return codes.astype("<u4").tobytes().decode("utf-32-le")


def _any_case(letter: str) -> str:
    return "[" + "".join(rf"\x{{{ord(each):x}}}" for each in (letter, *_others_by_fold().get(letter, ()))) + "]"


@lru_cache(maxsize=1)
def _others_by_fold() -> dict[str, list[str]]:
    """Return for each letter the others that fold to it."""
    found: dict[str, list[str]] = {}
    for letter in _letters():
        if (folded := letter.lower()) != letter and fold(letter) != letter:
            found.setdefault(folded, []).append(letter)
    return found


@lru_cache(maxsize=1)
def _alnum_ranges() -> list[tuple[int, int]]:
    """Return the ranges of letters and digits, first and last, as ``str.isalnum`` knows them."""
    return [(ord(match[0][0]), ord(match[0][-1])) for match in re.finditer(r"[^\W_]+", _letters())]


@lru_cache(maxsize=1)
def _alnum_class() -> str:
    return "".join(rf"\x{{{first:x}}}-\x{{{last:x}}}" for first, last in _alnum_ranges())


@lru_cache(maxsize=1)
def _alnum() -> npt.NDArray[np.bool_]:
    table = np.zeros(0x110000, dtype=np.bool_)
    for first, last in _alnum_ranges():
        table[first : last + 1] = True
    return table


@lru_cache(maxsize=1)
def _ascii_alnum() -> npt.NDArray[np.bool_]:
    return np.array([chr(code).isalnum() for code in range(128)])


@compiled
def _begin(data: Any, offsets: Any, needle: Any, lower: Any, found: Any) -> None:
    for row in range(len(offsets) - 1):
        at, length = offsets[row], len(needle)
        if offsets[row + 1] - at >= length:
            same = 0
            while same < length and lower[data[at + same]] == needle[same]:
                same += 1
            found[row] = same == length


@compiled
def _find(data: Any, offsets: Any, needle: Any, probes: Any, lower: Any, edges: Any, alnum: Any, found: Any) -> None:
    """Find the needle in each row; at an edge that is set, no letter or digit may go on.

    Case is first ignored by a bit that also takes a few signs for others: what that lets through is compared in full.
    """
    length, row = len(needle), 0
    bit = np.uint8(32 if lower[65] == 97 else 0)
    first, second = data[probes[0] :], data[probes[1] :]
    wanted_first, wanted_second = needle[probes[0]] | bit, needle[probes[1]] | bit
    at, stop = offsets[0], offsets[len(offsets) - 1] - length + 1
    while at < stop:
        end = stop
        if at + _STRIDE <= stop:
            end = at + _STRIDE
            firsts, seconds, near = first[at:end], second[at:end], np.uint8(0)
            for i in range(_STRIDE):
                near |= np.uint8((firsts[i] | bit) == wanted_first) & np.uint8((seconds[i] | bit) == wanted_second)
            if near == 0:
                at = end
                continue
        while at < end:
            if (first[at] | bit) == wanted_first and (second[at] | bit) == wanted_second:
                same = 0
                while same < length and lower[data[at + same]] == needle[same]:
                    same += 1
                if same == length:
                    while offsets[row + 1] <= at:
                        row += 1
                    if at + length <= offsets[row + 1] and not (
                        (edges[0] and at > offsets[row] and _is_alnum_before(data, at, offsets[row], alnum))
                        or (
                            edges[1]
                            and at + length < offsets[row + 1]
                            and _is_alnum_at(data, at + length, offsets[row + 1], alnum)
                        )
                    ):
                        found[row] = True
                        at = offsets[row + 1]
                        continue
            at += 1


@compiled
def _is_alnum_before(data: Any, at: Any, start: Any, alnum: Any) -> Any:
    begin = at - 1
    while begin > start and begin > at - 4 and data[begin] & 0xC0 == 0x80:
        begin -= 1
    return _is_alnum_at(data, begin, at, alnum)


@compiled
def _is_alnum_at(data: Any, at: Any, end: Any, alnum: Any) -> Any:
    """Read one letter; bytes that are none are not alphanumeric."""
    lead = np.int64(data[at])
    if lead < 0x80:
        return alnum[lead]
    size = 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
    if at + size > end:
        return False
    code = lead & (0x7F >> size)
    for i in range(1, size):
        code = (code << 6) | (np.int64(data[at + i]) & 0x3F)
    return alnum[code] if code < len(alnum) else False
