"""Turn columns of text, as CSV files and log lines have them, into Arrow arrays of a table's types.

A value is what it looks like: a whole number, a number with decimals (also with a decimal comma, where the file has
them), true or false, an RFC 3339 time, or text. A number with zeros before it is text, for it is more likely a code.
An empty value is null, and in a string column empty text; words such as ``NULL``, ``NaN`` and ``n/a`` are null in
columns of other types. What does not fit its column is spilled as what it looks like. Values are classified once, by a
compiled loop, or the plain way where there are few. It does not choose which names become columns.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.ingest.instants import FEW_TEXTS, NO_TIME, is_few, text_buffers, time_of_text, times_of_texts
from tidelake.ingest.rows import SHOWN_BYTES, Spill, encode, vector_of
from tidelake.logical import fitted
from tidelake.model.schema import DataType
from tidelake.model.times import MAX_US, MIN_US
from tidelake.runtime import notices
from tidelake.runtime.compiling import allocating, is_ready, part
from tidelake.runtime.readiness import has_loops

EMPTY, INT, REAL, BOOL, TIME, NULL, TEXT = range(7)  # what a value looks like
_LONG_NUMBER = 255  # a whole number of more than 18 digits, which may be too large: left to the plain way

Codes = npt.NDArray[np.uint8]
RawRow = tuple[int, str]  # the number of a line, and the line

_U = np.uint64
_NULL_WORDS = ("null", "nan", "-nan", "na", "n/a", "#n/a", "\\n", "none", "nil")
_INT = re.compile(r"-?(?:0|[1-9][0-9]*)")
_REAL = re.compile(r"-?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_COMMA_REAL = re.compile(r"-?(?:0|[1-9][0-9]{0,2}(?:\.[0-9]{3})+|[1-9][0-9]*)(?:,[0-9]+)?")
_BOOLS = ("true", "false")
_INFINITIES = ("inf", "-inf", "infinity", "-infinity")
_TYPES = {
    frozenset({INT}): DataType("long"),
    frozenset({REAL}): DataType("real"),
    frozenset({INT, REAL}): DataType("real"),
    frozenset({BOOL}): DataType("bool"),
    frozenset({TIME}): DataType("timestamp"),
}


class TextColumns:
    """Columns of text by name; ``names`` are the table's, ``raw`` gives the lines that rows came from."""

    def __init__(
        self,
        columns: Mapping[str, pa.Array],
        rows: int,
        names: Sequence[str],
        *,
        raw: Callable[[Sequence[int]], list[RawRow]],
        decimal: str = ".",
        as_text: Collection[str] = (),
    ) -> None:
        self.rows = rows
        self._known = dict.fromkeys(names)
        self._columns = dict(columns)
        self._raw, self._decimal, self._as_text = raw, decimal, frozenset(as_text)
        self._spill = Spill()
        self._classified: dict[str, Codes] = {}

    @property
    def spilled(self) -> int:
        """How many values were spilled."""
        return self._spill.count

    def names(self) -> Iterator[str]:
        """Return the columns that have a value somewhere: the table's first, then others in their order."""
        held = [name for name in self._columns if self._has_value(name)]
        yield from (name for name in self._known if name in held)
        yield from (name for name in held if name not in self._known)

    def fold(self, name: str, into: str) -> bool:
        """Return all values of a column to another; not where a row has both."""
        texts, codes = self._columns[name], self._codes(name)
        if into in self._columns:
            there = self._codes(into) != EMPTY
            if (there & (codes != EMPTY)).any():
                return False
            texts = pc.if_else(pa.array(there), self._columns[into], texts)
            codes = np.where(there, self._codes(into), codes)
        del self._columns[name]
        self._columns[into], self._classified[into] = texts, codes
        return True

    def proposed(self, name: str) -> DataType | None:
        """Return the type that holds all values of a column."""
        if name in self._as_text:
            return DataType("string")
        seen = frozenset(np.unique(self._codes(name)).tolist()) - {EMPTY, NULL}
        return _TYPES.get(seen, DataType("string"))

    def has_reals(self, name: str) -> bool:
        """Whether a column has a number that is not whole, or is written as such."""
        return bool((self._codes(name) == REAL).any())

    def spill_others(self, kept: Collection[str]) -> None:
        """Send all values of all other columns to the overflow column."""
        for name in self._columns:
            if name not in kept:
                self._spill_where(name, self._codes(name) != EMPTY)

    def overflow(self) -> pa.Array:
        """Return one CBOR map a row of the spilled values under their names, null where there is none."""
        return self._spill.array(self.rows)

    def where(self, row: int) -> dict[str, int]:
        """Return where a row is, for a message."""
        return {"line": self._raw([row])[0][0]}

    def raw(self, rows: Sequence[int]) -> list[RawRow]:
        """Return the numbers and the texts of the lines that rows came from."""
        return self._raw(rows)

    def shown(self, name: str, row: int) -> str:
        """Show what a row has in a column, for a message."""
        text = self._columns[name][row].as_py() if name in self._columns else None
        return repr(text[:SHOWN_BYTES]) if text else "none"

    def texts(self, name: str) -> pa.Array:
        """Return a column as it was written."""
        return self._columns[name]

    def column(self, name: str, kind: DataType) -> pa.Array:
        """Return a column as this type, or as long where a value is too large for an int; spill what does not fit."""
        texts = self._columns[name]
        if kind.logical is not None:
            return self._logical(name, kind)
        if kind.kind == "string":
            return texts if name in self._as_text else texts.fill_null("")
        codes = self._codes(name)
        match kind.kind:
            case "int" | "long":
                numbers = _cast(self._kept(texts, codes, {INT}), pa.int64())
                self._spill_where(name, ~np.isin(codes, (INT, EMPTY, NULL)))
                return _narrowed(numbers) if kind.kind == "int" else numbers
            case "real":
                self._spill_where(name, ~np.isin(codes, (INT, REAL, EMPTY, NULL)))
                return _cast(self._pointed(self._kept(texts, codes, {INT, REAL})), pa.float64())
            case "bool":
                self._spill_where(name, ~np.isin(codes, (BOOL, EMPTY, NULL)))
                return pc.equal(pc.utf8_lower(self._kept(texts, codes, {BOOL})), "true")
            case "timestamp":
                times = times_of_texts(self._kept(texts, codes, {TIME, INT, REAL}))
                fits = times != NO_TIME
                self._spill_where(name, ~fits & (codes != EMPTY) & (codes != NULL))
                return time_array(times)
            case "vector":
                for row in np.flatnonzero(codes != EMPTY)[:1].tolist():
                    vector_of(texts[row].as_py(), cast(int, kind.dimension), name, self.where(row))
                return pa.nulls(self.rows, kind.arrow)
            case _:
                return self._dynamics(name)

    def _has_value(self, name: str) -> bool:
        if name not in self._as_text:
            return bool((self._codes(name) != EMPTY).any())
        return bool(pc.any(pc.greater(pc.binary_length(self._columns[name]), 0)).as_py())

    def _logical(self, name: str, kind: DataType) -> pa.Array:
        """Return a column as a logical type, its distinct texts read one by one; nested values are JSON text."""
        codes = self._codes(name)
        is_decimal = kind.kind in ("long", "string")
        texts = self._kept(self._columns[name], codes, {INT, REAL, BOOL, TIME, TEXT})
        distinct = (self._pointed(texts) if is_decimal else texts).dictionary_encode()
        read = _json if kind.kind == "dynamic" else str
        encoded = [encode(read(text), {"column": name}) for text in distinct.dictionary.to_pylist()]
        array, bad = fitted(pa.array(encoded, pa.binary()).take(distinct.indices), kind)
        self._spill_where(name, bad)
        return array

    def _codes(self, name: str) -> Codes:
        if (found := self._classified.get(name)) is None:
            found = self._classified[name] = classify(self._columns[name], comma=self._decimal == ",")
        return found

    def _kept(self, texts: pa.Array, codes: Codes, kept: set[int]) -> pa.Array:
        """Return the texts that look like one of these, trimmed, and null for the others."""
        keeps = np.isin(codes, list(kept))
        if not keeps.all():
            texts = pc.if_else(pa.array(keeps), texts, pa.scalar(None, pa.string()))
        return pc.ascii_trim_whitespace(texts)

    def _pointed(self, texts: pa.Array) -> pa.Array:
        """Return numbers with a decimal point, whatever the file has."""
        if self._decimal != ",":
            return texts
        return pc.replace_substring(pc.replace_substring(texts, ".", ""), ",", ".")

    def _value(self, text: str, code: int) -> Any:
        """Return one value as what it looks like."""
        text = text if code == TEXT else text.strip()
        if code == BOOL:
            return text.lower() == "true"
        if code == INT:
            return int(text)
        if code == REAL:
            return float(text.replace(".", "").replace(",", ".") if self._decimal == "," else text)
        return text

    def _spill_where(self, name: str, mask: npt.NDArray[np.bool_]) -> None:
        rows = np.flatnonzero(mask)
        if len(rows):
            codes, texts = self._codes(name)[rows], self._columns[name].take(pa.array(rows)).to_pylist()
            values = [self._value(text, code) for text, code in zip(texts, codes.tolist(), strict=True)]
            self._spill.add(name, rows.tolist(), values)

    def _dynamics(self, name: str) -> pa.Array:
        """Encode the distinct values, and spread them over the rows."""
        codes = self._codes(name)
        coded = pc.if_else(pa.array(codes != EMPTY), self._columns[name], pa.scalar(None, pa.string()))
        distinct = coded.dictionary_encode()
        kinds = classify(distinct.dictionary, comma=self._decimal == ",")
        pairs = zip(distinct.dictionary.to_pylist(), kinds.tolist(), strict=True)
        encoded = [encode(self._value(text, code), {"column": name}) for text, code in pairs]
        return pa.array(encoded, pa.binary()).take(distinct.indices)


def _json(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text


def time_array(times: npt.NDArray[np.int64]) -> pa.Array:
    """Return microseconds as timestamps, null where there is no time."""
    fits = (times >= MIN_US) & (times <= MAX_US)
    return pa.array(np.where(fits, times, 0), mask=~fits).view(pa.timestamp("us", tz="UTC"))


def classify(texts: pa.Array, *, comma: bool = False) -> Codes:
    """Return what each text looks like; null looks empty."""
    if len(texts) > FEW_TEXTS and not is_ready(_classify) and not has_loops():
        return _classify_by_patterns(texts, comma)
    if is_few(texts, _classify):
        return np.array([_look(text, comma) for text in texts.to_pylist()], dtype=np.uint8)
    data, offsets = text_buffers(texts)
    codes = cast(Codes, _classify(data, offsets, comma, _WORDS))
    if texts.null_count:
        codes[texts.is_null().to_numpy(zero_copy_only=False)] = EMPTY
    rare = np.flatnonzero(codes == _LONG_NUMBER)
    if len(rare):
        codes[rare] = [_look(text, comma) for text in texts.take(pa.array(rare)).to_pylist()]
    return codes


def _look(text: str | None, comma: bool) -> int:
    """Classify one text; this defines what the loop does."""
    text = (text or "").strip(" \t\r\n")
    if not text:
        return EMPTY
    if _INT.fullmatch(text) and text != "-0":
        return INT if len(text) < 19 or -(2**63) <= int(text[:40]) < 2**63 else TEXT
    if (_COMMA_REAL if comma else _REAL).fullmatch(text) or text.lower() in _INFINITIES:
        return REAL
    if text.lower() in _BOOLS:
        return BOOL
    if text.lower() in _NULL_WORDS:
        return NULL
    is_dated = len(text) >= 10 and text[4] == text[7] == "-"
    return TIME if is_dated and times_of_texts(pa.array([text]))[0] != NO_TIME else TEXT


def _classify_by_patterns(texts: pa.Array, comma: bool) -> Codes:
    """Classify a column without the loop, one pattern after the other; numbers that may be too large are looked at."""
    notices.interpreting(texts.nbytes)
    trimmed = pc.ascii_trim(texts.fill_null(""), " \t\r\n")
    lower = pc.ascii_lower(trimmed)
    codes = np.full(len(texts), TEXT, dtype=np.uint8)

    def mark(code: int, found: pa.BooleanArray) -> None:
        codes[np.asarray(found) & (codes == TEXT)] = code

    mark(EMPTY, pc.equal(trimmed, ""))
    whole = pc.and_(pc.match_substring_regex(trimmed, rf"\A(?:{_INT.pattern})\z"), pc.not_equal(trimmed, "-0"))
    is_short = pc.less(pc.binary_length(trimmed), 19)
    mark(INT, pc.and_(whole, is_short))
    mark(_LONG_NUMBER, pc.and_not(whole, is_short))
    mark(REAL, pc.match_substring_regex(trimmed, rf"\A(?:{(_COMMA_REAL if comma else _REAL).pattern})\z"))
    for code, words in ((REAL, _INFINITIES), (BOOL, _BOOLS), (NULL, _NULL_WORDS)):
        mark(code, pc.is_in(lower, value_set=pa.array(words)))
    dated = np.flatnonzero((codes == TEXT) & np.asarray(pc.match_substring_regex(trimmed, r"(?s)\A.{4}-.{2}-.{2}")))
    if len(dated):
        codes[dated] = np.where(times_of_texts(trimmed.take(pa.array(dated))) != NO_TIME, TIME, TEXT)
    rare = np.flatnonzero(codes == _LONG_NUMBER)
    if len(rare):
        codes[rare] = [_look(text, comma) for text in trimmed.take(pa.array(rare)).to_pylist()]
    return codes


@allocating
def _classify(data: Any, offsets: Any, comma: Any, words: Any) -> Any:
    codes = np.empty(len(offsets) - 1, dtype=np.uint8)
    for i in range(len(codes)):
        at, end = np.int64(offsets[i]), np.int64(offsets[i + 1])
        while at < end and _is_blank(data[_U(at)]):
            at += 1
        while end > at and _is_blank(data[_U(end - 1)]):
            end -= 1
        if at == end:
            codes[i] = EMPTY
            continue
        codes[i] = TEXT
        is_signed = data[_U(at)] == 45
        begin = at + 1 if is_signed else at
        digits = _skip_digits(data, begin, end)
        count = digits - begin
        if count == 0:
            codes[i] = REAL if not comma and _is_point(data, begin, end) else _word(data, at, end, words)
        elif count == 4 and not is_signed and end - at >= 10 and data[_U(digits)] == 45:
            if time_of_text(data, at, end) != NO_TIME:
                codes[i] = TIME
        elif count > 1 and data[_U(begin)] == 48:
            continue
        elif digits == end:
            is_below_zero = is_signed and count == 1 and data[_U(begin)] == 48  # -0 is no whole number
            codes[i] = REAL if is_below_zero else INT if count <= 18 else _LONG_NUMBER
        elif comma:
            if _is_grouped(data, digits, end, count if data[_U(begin)] != 48 else 4):
                codes[i] = REAL
        elif data[_U(digits)] == 46:
            if _is_exponent(data, _skip_digits(data, digits + 1, end), end):
                codes[i] = REAL
        elif _is_exponent(data, digits, end):
            codes[i] = REAL
    return codes


@part
def _is_blank(letter: Any) -> Any:
    return letter == 32 or letter == 9 or letter == 10 or letter == 13


@part
def _skip_digits(data: Any, at: Any, end: Any) -> Any:
    while at < end and _U(data[_U(at)]) - _U(48) <= _U(9):
        at += 1
    return at


@part
def _is_exponent(data: Any, at: Any, end: Any) -> Any:
    """Whether nothing follows, or an exponent alone."""
    if at == end:
        return True
    if data[_U(at)] | 32 != 101:
        return False
    at += 1
    if at < end and (data[_U(at)] == 43 or data[_U(at)] == 45):
        at += 1
    return at < end and _skip_digits(data, at, end) == end


@part
def _is_point(data: Any, at: Any, end: Any) -> Any:
    """Whether a number without a digit before its point stands here."""
    if at + 1 >= end or data[_U(at)] != 46:
        return False
    digits = _skip_digits(data, at + 1, end)
    return digits > at + 1 and _is_exponent(data, digits, end)


@part
def _is_grouped(data: Any, at: Any, end: Any, count: Any) -> Any:
    """Whether groups of thousands and a decimal comma follow the first digits, one of them at least."""
    while at < end and data[_U(at)] == 46 and count <= 3:
        digits = _skip_digits(data, at + 1, end)
        if digits != at + 4:
            return False
        at = digits
    if at == end:
        return True
    return data[_U(at)] == 44 and at + 1 < end and _skip_digits(data, at + 1, end) == end


@part
def _word(data: Any, at: Any, end: Any, words: Any) -> Any:
    """Return which of the words that mean something this is: rows of its code, its length and its letters."""
    size = end - at
    for row in range(len(words)):
        if words[row, 1] != size:
            continue
        same = True
        for i in range(size):
            letter = data[_U(at + i)]
            if _U(letter) - _U(65) <= _U(25):
                letter = letter | 32
            if letter != words[row, 2 + i]:
                same = False
                break
        if same:
            return words[row, 0]
    return np.uint8(TEXT)


def _table_of_words() -> npt.NDArray[np.uint8]:
    meanings = {**dict.fromkeys(_INFINITIES, REAL), **dict.fromkeys(_BOOLS, BOOL), **dict.fromkeys(_NULL_WORDS, NULL)}
    table = np.zeros((len(meanings), 2 + max(map(len, meanings))), dtype=np.uint8)
    for row, (word, code) in enumerate(meanings.items()):
        table[row, :2] = code, len(word)
        table[row, 2 : 2 + len(word)] = np.frombuffer(word.encode(), dtype=np.uint8)
    table.flags.writeable = False
    return table


_WORDS = _table_of_words()


def _cast(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    try:
        return texts.cast(kind)
    except pa.ArrowInvalid:  # a number beyond what Arrow reads, such as 1e400
        return pa.array([None if text is None else float(text) for text in texts.to_pylist()], kind)


def _narrowed(numbers: pa.Array) -> pa.Array:
    """Return whole numbers in 32 bits if all of them fit."""
    bounds = pc.min_max(numbers).as_py()
    if bounds["min"] is None or (bounds["min"] >= -(2**31) and bounds["max"] < 2**31):
        return numbers.cast(pa.int32())
    return numbers
