"""Compare an answer with one that was printed.

Others print numbers rounded, times in many spellings, bools as words or digits, and dynamic values as JSON of sorts. A
printed value equals ours where ours could be printed so; a null equals an empty text, because most printers show both
alike. It does not know where the values come from.
"""

from __future__ import annotations

import json
import math
import re
from ast import literal_eval
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

NULLS = frozenset({"", "null", "(null)", "<null>", "\\N", "NULL", "None"})
ELLIPSES = frozenset({"...", "…", ". . .", "."})
_TRUE, _FALSE = frozenset({"true", "1"}), frozenset({"false", "0"})
_NUMBER = re.compile(r"[-+]?(\d[\d,]*)?(\.\d*)?([eE][-+]?\d+)?")
_TIME = re.compile(r"(\d{4})-(\d\d?)-(\d\d?)(?:[T ](\d\d?):(\d\d)(?::(\d\d)(?:\.(\d+))?)?)?\s*(Z|[-+]\d\d:?\d\d)?")
_AMERICAN = re.compile(r"(\d\d?)/(\d\d?)/(\d{4}),? (\d\d?):(\d\d):(\d\d)(?:\.(\d+))?\s*([AP]M)?", re.IGNORECASE)
_MARKUP = {
    "\\|": "|", "&#124;": "|", "&lt;": "<", "&gt;": ">", "<br>": "\n", "<br/>": "\n", "<br />": "\n", "&nbsp;": " ",
}  # fmt: skip
_LINK = re.compile(r"<(https?://[^<>]*)>")
_SPAN = re.compile(r"(-?)(?:(\d+)[.:](?=\d+:\d\d:\d\d))?(\d+):(\d\d):(\d\d)(?:\.(\d+))?")
_UNITS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1, "ms": 1e-3, "tick": 1e-7, "ticks": 1e-7}
_SHORT_SPAN = re.compile(rf"(-?[\d.]+)\s*({'|'.join(sorted(_UNITS, key=len, reverse=True))})")
_TOLERANCE = 1e-6  # relative: far below what a printer leaves out, far above what engines differ by


def same_rows(
    printed: Sequence[Sequence[str]], ours: Sequence[Sequence[Any]], *, ordered: bool = False, sets: bool = False
) -> bool:
    """Whether rows equal printed ones: in any order unless it counts; a printed ellipsis stands for any rows.

    ``sets`` says that lists inside of values have no order.
    """
    shown = [row for row in printed if not _is_ellipsis(row)]
    if not ours and len(printed) == 1 and not any(cell.strip() for cell in printed[0]):
        return True  # some print no rows as an empty one
    if len(shown) == len(printed) and len(printed) != len(ours):
        return False
    if ordered and len(shown) == len(printed):
        return all(_same_row(left, right, sets=sets) for left, right in zip(printed, ours, strict=True))
    left = list(ours)
    for row in shown:
        at = next((at for at, own in enumerate(left) if _same_row(row, own, sets=sets)), None)
        if at is None:
            return False
        del left[at]
    return True


def same_value(printed: str, ours: Any, *, sets: bool = False) -> bool:
    """Whether a value could be printed so."""
    text = _unescaped(printed).strip()
    text = text[1:-1] if len(text) > 1 and text[0] == text[-1] == "`" else text
    if ours is None or ours == "":
        return text in NULLS or text in ("''", '""', "[]", "NaN", "nan")
    if isinstance(ours, bool):
        return text.lower() in (_TRUE if ours else _FALSE)
    if isinstance(ours, int | float | Decimal):
        return _same_number(text, ours)
    if isinstance(ours, datetime | date):
        return _same_time(text, ours)
    if isinstance(ours, timedelta):
        return _span(text) == ours
    if isinstance(ours, list | dict | tuple):
        found = _json(text)
        return (not ours and not text) or (found is not _NOTHING and _same_json(found, ours, sets=sets))
    return _same_text(text, str(ours), sets=sets)


def _same_text(printed: str, ours: str, *, sets: bool) -> bool:
    if _squashed(printed) == _squashed(ours) or _squashed(_unquoted(printed)) == _squashed(ours):
        return True
    if (span := _span(printed)) is not None and span == _span(ours):
        return True
    if ours[:1] in "[{\"'" or ours in ("null", "true", "false"):
        left, right = _json(printed), _json(ours)
        if right is not _NOTHING:
            return _same_json(left, right, sets=sets) or (
                isinstance(right, str) and _same_text(printed, right, sets=sets)
            )
    try:
        return _NUMBER.fullmatch(printed) is not None and _same_number(printed, float(ours))
    except ValueError:
        return False


def _same_row(printed: Sequence[str], ours: Sequence[Any], *, sets: bool) -> bool:
    return len(printed) == len(ours) and all(
        same_value(left, right, sets=sets) for left, right in zip(printed, ours, strict=True)
    )


def _same_number(text: str, ours: float | Decimal) -> bool:
    if text.lower() in ("nan", "inf", "-inf", "∞", "-∞", "infinity", "-infinity"):
        spelled = text.lower().replace("∞", "inf")
        return math.isnan(ours) if spelled == "nan" else float(ours) == float(spelled)
    if not text or _NUMBER.fullmatch(text) is None:
        return False
    plain = text.replace(",", "")
    try:
        found = float(plain)
    except ValueError:
        return False
    if math.isclose(found, float(ours), rel_tol=_TOLERANCE, abs_tol=1e-12):
        return not isinstance(ours, int) or "." in plain or "e" in plain.lower() or int(plain) == ours
    if isinstance(ours, int) or "." not in plain or "e" in plain.lower():
        return False
    places = len(plain.partition(".")[2])
    return places >= 2 and abs(found - float(ours)) <= 0.51 * 10**-places  # it was rounded when printed


def _same_time(text: str, ours: date) -> bool:
    found = _time(text)
    if found is None:
        return False
    own = ours if isinstance(ours, datetime) else datetime(ours.year, ours.month, ours.day, tzinfo=UTC)
    own = own.astimezone(UTC) if own.tzinfo else own.replace(tzinfo=UTC)
    return abs(found - own) <= timedelta(microseconds=1)  # some print a tenth of it


def _time(text: str) -> datetime | None:
    try:
        if (match := _TIME.fullmatch(text)) is not None:
            year, month, day, hour, minute, second, part, zone = match.groups()
            micro = int((part or "0")[:6].ljust(6, "0"))
            found = datetime(
                int(year), int(month), int(day), int(hour or 0), int(minute or 0), int(second or 0), micro, UTC
            )
            if zone in (None, "Z"):
                return found
            digits = zone[1:].replace(":", "")
            shift = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
            return found - shift if zone[0] == "+" else found + shift
        if (match := _AMERICAN.fullmatch(text)) is not None:
            month, day, year, hour, minute, second, part, half = match.groups()
            hours = int(hour) % 12 + (12 if half.upper() == "PM" else 0) if half else int(hour)
            micro = int((part or "0")[:6].ljust(6, "0"))
            return datetime(int(year), int(month), int(day), hours, int(minute), int(second), micro, UTC)
    except ValueError:
        return None
    return None


def _span(text: str) -> timedelta | None:
    if (match := _SPAN.fullmatch(text)) is not None:
        sign, days, hours, minutes, seconds, part = match.groups()
        span = timedelta(
            days=int(days or 0),
            hours=int(hours),
            minutes=int(minutes),
            seconds=int(seconds),
            microseconds=int((part or "0")[:6].ljust(6, "0")),
        )
        return -span if sign else span
    if (match := _SHORT_SPAN.fullmatch(text)) is not None:
        return timedelta(seconds=float(match[1]) * _UNITS[match[2]])
    return None


_NOTHING = object()


def _json(text: str) -> Any:
    nested = text.replace('"{', "{").replace('}"', "}")  # some print what is within in quotes of its own
    cut = re.sub(r",\s*\.{3,}\s*(?=[,\]])", ',"..."', text)  # a list whose middle is left out
    for attempt in (text, nested, cut):
        try:
            return json.loads(attempt)
        except ValueError:
            pass
    try:
        return literal_eval(re.sub(r"\bNULL\b|\bnull\b", "None", text))  # ClickHouse quotes with apostrophes
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return _NOTHING


def _same_json(left: Any, right: Any, *, sets: bool) -> bool:
    match left, right:
        case dict(), dict():
            return left.keys() == right.keys() and all(_same_json(left[k], right[k], sets=sets) for k in left)
        case list(), list() | tuple() if "..." in left:
            at = left.index("...")
            tail = len(left) - at - 1
            ends = [*right[:at], *right[len(right) - tail :]]
            return len(right) >= at + tail and _same_json(left[:at] + left[at + 1 :], ends, sets=sets)
        case list(), list() | tuple():
            if len(left) != len(right):
                return False
            if sets:
                left, right = sorted(left, key=_sortable), sorted(right, key=_sortable)
            return all(_same_json(a, b, sets=sets) for a, b in zip(left, right, strict=True))
        case None, None:
            return True
        case str(), str() if left != right:
            return _same_text(left.strip(), right.strip(), sets=sets) or _same_times(left, right)
        case (bool(), _) | (_, bool()):
            return left is right
        case (int() | float(), int() | float()):
            return _same_number(str(left), right) or math.isclose(left, right, rel_tol=_TOLERANCE)
        case _:
            return bool(left == right)


def _same_times(left: str, right: str) -> bool:
    ours = _time(right)
    return ours is not None and _same_time(left, ours)


def _sortable(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)


def _squashed(text: str) -> str:
    """Return text without what printing adds: spaces of tables, escaped bars."""
    return " ".join(_unescaped(text).split())


def _unescaped(text: str) -> str:
    for written, meant in _MARKUP.items():
        text = text.replace(written, meant)
    return _LINK.sub(r"\1", text)


def _unquoted(text: str) -> str:
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'`" else text


def _is_ellipsis(row: Sequence[str]) -> bool:
    return any(cell.strip() in ELLIPSES for cell in row) and all(cell.strip() in ELLIPSES | {""} for cell in row)
