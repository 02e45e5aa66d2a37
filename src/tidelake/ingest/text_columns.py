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
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.ingest.columns import SHOWN_BYTES, vector_of
from tidelake.ingest.instants import FEW_TEXTS, NO_TIME, text_buffers, time_of_text, times_of_texts
from tidelake.ingest.rows import Spill, encode
from tidelake.kernels import compiled
from tidelake.schema import DataType
from tidelake.times import MAX_US, MIN_US

EMPTY, INT, REAL, BOOL, TIME, NULL, TEXT = range(7)  # what a value looks like

Codes = npt.NDArray[np.uint8]
RawRow = tuple[int, str]  # the number of a line, and the line

_U = np.uint64
_NULL_WORDS = ("null", "nan", "-nan", "na", "n/a", "#n/a", "\\n", "none", "nil")
_INT = re.compile(r"-?(?:0|[1-9][0-9]*)")
_REAL = re.compile(r"-?(?:0|[1-9][0-9]*)?(?:\.[0-9]*)?(?<=[0-9.])(?:[eE][+-]?[0-9]+)?")
_COMMA_REAL = re.compile(r"-?(?:0|[1-9][0-9]{0,2}(?:\.[0-9]{3})+|[1-9][0-9]*)(?:,[0-9]+)?")
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
        held = [name for name in self._columns if (self._codes(name) != EMPTY).any()]
        yield from (name for name in self._known if name in held)
        yield from (name for name in held if name not in self._known)

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
        """Say where a row is, for a message."""
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
        codes, texts = self._codes(name), self._columns[name]
        match kind.kind:
            case "string":
                return texts.fill_null("") if name not in self._as_text else texts
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


def time_array(times: npt.NDArray[np.int64]) -> pa.Array:
    """Return microseconds as timestamps, null where there is no time."""
    fits = (times >= MIN_US) & (times <= MAX_US)
    return pa.array(np.where(fits, times, 0), mask=~fits).view(pa.timestamp("us", tz="UTC"))


def classify(texts: pa.Array, *, comma: bool = False) -> Codes:
    """Say what each text looks like; null looks empty."""
    if len(texts) <= FEW_TEXTS and not getattr(_classify, "signatures", True):
        return np.array([_look(text, comma) for text in texts.to_pylist()], dtype=np.uint8)
    data, offsets = text_buffers(texts)
    codes = cast(Codes, _classify(data, offsets, comma))
    if texts.null_count:
        codes[texts.is_null().to_numpy(zero_copy_only=False)] = EMPTY
    rare = np.flatnonzero(codes == _RARE)
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
    if text.lower() in ("true", "false"):
        return BOOL
    if text.lower() in _NULL_WORDS:
        return NULL
    is_dated = len(text) >= 10 and text[4] == text[7] == "-"
    return TIME if is_dated and times_of_texts(pa.array([text]))[0] != NO_TIME else TEXT


_RARE = 255  # left to the plain way


@compiled
def _classify(data: Any, offsets: Any, comma: Any) -> Any:
    codes = np.empty(len(offsets) - 1, dtype=np.uint8)
    for i in range(len(codes)):
        at, end = np.int64(offsets[i]), np.int64(offsets[i + 1])
        while at < end and data[_U(at)] <= 32:
            at += 1
        while end > at and data[_U(end - 1)] <= 32:
            end -= 1
        if at == end:
            codes[i] = EMPTY
            continue
        first = data[_U(at)]
        is_signed = first == 45
        begin = at + 1 if is_signed else at
        digits = begin
        while digits < end and _U(data[_U(digits)]) - _U(48) <= _U(9):
            digits += 1
        count = digits - begin
        has_zeros = count > 1 and data[_U(begin)] == 48
        if digits == end and count > 0:
            if has_zeros:
                codes[i] = TEXT
            elif count <= 18:
                codes[i] = REAL if is_signed and count == 1 and data[_U(begin)] == 48 else INT
            else:
                codes[i] = _RARE
        elif count == 4 and not is_signed and end - at >= 10 and data[_U(digits)] == 45:
            codes[i] = TIME if time_of_text(data, at, end) != NO_TIME else TEXT
        elif count > 0 and not has_zeros and not comma and data[_U(digits)] == 46:
            digits += 1
            while digits < end and _U(data[_U(digits)]) - _U(48) <= _U(9):
                digits += 1
            codes[i] = REAL if digits == end else _RARE
        elif has_zeros:
            codes[i] = TEXT
        elif (count > 0 and (comma or data[_U(digits)] | 32 == 101)) or (count == 0 and (is_signed or first == 46)):
            codes[i] = _RARE
        elif count == 0 and end - at <= 9:
            letter = first | 32
            is_word = letter == 116 or letter == 102 or letter == 110 or letter == 105 or first == 35 or first == 92
            codes[i] = _RARE if is_word else TEXT
        else:
            codes[i] = TEXT
    return codes


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
