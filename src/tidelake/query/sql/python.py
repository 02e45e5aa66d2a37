"""Hold the functions of Spark's SQL that no SQL of DuckDB can write: formats, digits in other bases, parts of URLs.

Each is a function of one row's texts, as in ``query.functions.python``; a text that it cannot read gives null. They are
registered with DuckDB alone: Spark has its own. It does not touch values that SQL can.
"""

from __future__ import annotations

import json
import re
import zlib
from datetime import datetime
from decimal import Decimal
from typing import Any
from urllib.parse import unquote_plus, urlsplit

from tidelake.query.functions.declaration import Function, declare
from tidelake.query.sql.json_texts import json_by_type
from tidelake.query.sql.number_texts import number_text, real_of_base_16
from tidelake.query.sql.time_texts import days_of_text, micros_of_text, seconds_ahead, wall_micros_of_text

_SPARKS_OWN = "a part of how DuckDB writes what Spark has itself"
_FORMAT = re.compile(r"%(?:(\d+)\$)?([-#+ 0,(]*)(\d+)?(?:\.(\d+))?([a-zA-Z%])")
_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_SOUNDS = dict(zip("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "01230127022455012623017202", strict=True))  # 7: H and W, passed over
_TIME_PIECE = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|\[|\]|.", re.DOTALL)
_MONTHS = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]
_DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
_NUMBER_FORMAT = re.compile(r"(MI|S|\$)*([09,G]*)(?:[.D]([09]*))?(MI|S|PR|\$)*", re.IGNORECASE)


def format_string(pattern: str, arguments: str, _: str | None) -> str:
    """Put values into a pattern as Java's formatter does; ``%2$s`` names the second."""
    values = json.loads(arguments, parse_float=Decimal)
    following = iter(range(len(values)))

    def piece(match: re.Match[str]) -> str:
        place, flags, width, precision, kind = match.groups()
        if kind == "%":
            return "%".rjust(int(width or 0))
        if kind == "n":
            return "\n"
        value = values[int(place) - 1 if place else next(following)]
        text = _formatted(value, kind, flags, precision)
        if "-" in flags:
            return text.ljust(int(width or 0))
        return text.rjust(int(width or 0))

    def padded(match: re.Match[str]) -> str:
        flags, width = match[2], int(match[3] or 0)
        text = piece(match)
        return text.replace(" ", "0", width - len(text.lstrip())) if "0" in flags and text.startswith(" ") else text

    return _FORMAT.sub(padded, pattern)


def _formatted(value: Any, kind: str, flags: str, precision: str | None) -> str:
    lower = kind.lower()
    if value is None:
        text = "false" if lower == "b" else "null"
    elif lower == "b":
        text = "true" if value is not False else "false"
    elif lower == "s":
        shown = ("true" if value else "false") if isinstance(value, bool) else str(value)
        text = shown if precision is None else shown[: int(precision)]
    elif lower == "c":
        text = chr(value) if isinstance(value, int) else str(value)[:1]
    elif lower in "xo":
        text = format(
            int(value) % 2**64 if int(value) < -(2**31) else int(value) % 2**32 if value < 0 else int(value), lower
        )
    elif lower == "d":
        text = _signed(format(int(value), "," if "," in flags else ""), flags)
    else:
        shown = format(Decimal(str(value)), f"{',' if ',' in flags and lower == 'f' else ''}.{precision or 6}{lower}")
        text = _signed(re.sub(r"e([+-])(\d)$", r"e\g<1>0\2", shown), flags)
    return text.upper() if kind.isupper() else text


def _signed(text: str, flags: str) -> str:
    if text.startswith("-"):
        return f"({text[1:]})" if "(" in flags else text
    return ("+" if "+" in flags else " " if " " in flags else "") + text


def conv(number: str, source: str, target: str) -> str | None:
    """Write a number in another base; what follows its digits does not count, and past 64 bits it is the greatest."""
    base, other = int(source), int(target)
    if not (2 <= base <= 36 and 2 <= abs(other) <= 36):
        return None
    match = re.match(r"(-?)([0-9A-Za-z]*)", number.strip())
    assert match is not None
    value = 0
    for letter in match[2].upper():
        digit = _DIGITS.index(letter)
        if digit >= base:
            break
        value = min(value * base + digit, 2**64 - 1)
    if match[1]:
        value = -value
    if other > 0 and value < 0:
        value = value % 2**64 if value >= -(2**63) else 2**64 - 1
    if other < 0 and value >= 2**63:
        value -= 2**64
    sign, value = ("-", -value) if value < 0 else ("", value)
    digits = ""
    while value or not digits:
        value, digit = divmod(value, abs(other))
        digits = _DIGITS[digit] + digits
    return sign + digits


def split_text(text: str, pattern: str, limit: str) -> str:
    """Cut a text at a pattern into at most so many parts."""
    most = int(limit)
    if pattern == "":
        parts = list(text) if most <= 0 or most >= len(text) else [*text[: most - 1], text[most - 1 :]]
    else:
        parts = re.split(f"(?:{pattern})", text, maxsplit=max(most - 1, 0)) if most != 1 else [text]
    return json.dumps(parts, ensure_ascii=False)


def parse_url_part(url: str, part: str, key: str | None) -> str | None:
    """Return a part of a URL, or one value of its query."""
    parts = urlsplit(url)
    if re.search(r"[\s|]", url):
        return None
    if key is not None:
        found = re.search(rf"(?:^|&){re.escape(key)}=([^&]*)", parts.query) if part == "QUERY" else None
        return found[1] if found else None
    file = parts.path + (f"?{parts.query}" if parts.query else "")
    values = {
        "HOST": parts.netloc.rpartition("@")[2].partition(":")[0], "PATH": parts.path, "QUERY": parts.query,
        "REF": parts.fragment, "PROTOCOL": parts.scheme, "FILE": file, "AUTHORITY": parts.netloc,
        "USERINFO": parts.netloc.rpartition("@")[0],
    }  # fmt: skip
    return values.get(part) or ("" if part in ("PATH", "FILE") and part in values else None)


def url_decode(text: str) -> str | None:
    """Read a form's encoding back; a percent sign without two digits is no encoding."""
    return None if re.search(r"%(?![0-9A-Fa-f]{2})", text) else unquote_plus(text, errors="strict")


def soundex(text: str) -> str:
    """Return how a word sounds, as a letter and three digits."""
    if not text[:1].isalpha() or not text.isascii():
        return text
    code, last = text[0].upper(), _SOUNDS[text[0].upper()]
    for letter in text[1:].upper():
        sound = _SOUNDS.get(letter)
        if sound is None or len(code) == 4:
            continue
        if sound == "7":
            continue
        if sound not in ("0", last):
            code += sound
        last = sound
    return code.ljust(4, "0")


def luhn_check(text: str) -> bool:
    """Whether a number's last digit is the one that Luhn's algorithm gives."""
    if not re.fullmatch(r"[0-9]+", text):
        return False
    doubled = [sum(divmod(int(digit) * 2, 10)) if at % 2 else int(digit) for at, digit in enumerate(reversed(text))]
    return sum(doubled) % 10 == 0


def text_of_time(time: str, pattern: str) -> str:
    """Write a time as Java's formatter does."""
    at = datetime.fromisoformat(time)
    out = []
    for match in _TIME_PIECE.finditer(pattern):
        letter, piece = match[2], match[0]
        if letter is None:
            out.append("" if piece in "[]" else "'" if piece == "''" else (match[1] or piece).replace("''", "'"))
        else:
            out.append(_time_part(at, letter, len(piece)))
    return "".join(out)


def _time_part(at: datetime, letter: str, count: int) -> str:
    """Write one letter of a time's format; one that is not known is an error, which gives null."""
    hour12 = at.hour % 12
    quarter = (at.month + 2) // 3
    numbers = {
        "y": at.year, "u": at.year, "M": at.month, "L": at.month, "d": at.day, "H": at.hour, "h": hour12 or 12,
        "K": hour12, "k": at.hour or 24, "m": at.minute, "s": at.second, "D": at.timetuple().tm_yday, "Q": quarter,
        "q": quarter, "F": (at.day - 1) % 7 + 1 if count < 0 else (at.day - 1) // 7 + 1,
    }  # fmt: skip
    if letter in "yu":
        return f"{at.year % 100:02d}" if count == 2 else f"{at.year:0{count}d}"
    if letter in "ML" and count > 2:
        return _MONTHS[at.month - 1][: 3 if count == 3 else 99]
    if letter in "Qq" and count > 2:
        return f"Q{quarter}" if count == 3 else f"{('1st', '2nd', '3rd', '4th')[quarter - 1]} quarter"
    if letter in numbers:
        return f"{numbers[letter]:0{count}d}"
    if letter == "E":
        return _DAYS[at.weekday()][: 3 if count < 4 else 99]
    if letter == "a":
        return "AM" if at.hour < 12 else "PM"
    if letter == "S":
        return f"{at.microsecond:06d}".ljust(9, "0")[:count]
    if letter == "G":
        return "AD" if count < 4 else "Anno Domini"
    return {"V": "UTC", "z": "UTC" if count < 4 else "Coordinated Universal Time", "X": "Z",
            "x": "+00" if count == 1 else "+0000" if count % 2 == 0 else "+00:00",
            "Z": "+0000" if count < 4 else "GMT" if count == 4 else "Z", "O": "GMT"}[letter]  # fmt: skip


def number_to_char(number: str, pattern: str) -> str | None:
    """Write a number by a pattern of digits, as ``to_char`` does; one that does not fit is hashes."""
    value = Decimal(number)
    match = _NUMBER_FORMAT.fullmatch(pattern)
    if match is None:
        return None
    whole, fraction = match[2].upper(), match[3] or ""
    signs = pattern.upper()
    if "." not in signs and "D" not in signs:
        value = value.to_integral_value("ROUND_DOWN") if value != value.to_integral_value() else value
    shown = f"{abs(value):f}"
    digits, _, decimals = shown.partition(".")
    digits = digits.lstrip("0")
    slots = sum(letter in "09" for letter in whole)
    if len(digits) > slots or len(decimals.rstrip("0")) > len(fraction):
        digits, decimals = "#" * slots, "#" * len(fraction)
    integer = _placed(whole, digits or ("" if "0" in whole or not slots else "0"))
    text = integer + ("." + decimals.ljust(len(fraction), "0")[: len(fraction)] if re.search(r"[.Dd]", pattern) else "")
    return _with_signs(text, signs, value)


def _placed(slots: str, digits: str) -> str:
    """Put digits into slots from the right; before the first one stand spaces, or zeros where a slot is ``0``."""
    out: list[str] = []
    left = list(digits)
    zeros = [at for at, slot in enumerate(slots) if slot == "0"]
    first_zero = zeros[0] if zeros else len(slots)
    for at in range(len(slots) - 1, -1, -1):
        if slots[at] in ",G":
            out.append("," if left or at > first_zero else " ")
        elif left:
            out.append(left.pop())
        else:
            out.append("0" if at >= first_zero else " ")
    return "".join(reversed(out))


def _with_signs(text: str, signs: str, value: Decimal) -> str:
    bare = text.lstrip(" ")
    spaces = text[: len(text) - len(bare)]
    if "$" in signs:
        bare = "$" + bare
    negative = value < 0
    if signs.endswith("PR"):
        return f"{spaces}<{bare}>" if negative else f"{spaces}{bare}  "
    for mark, positive in (("S", "+"), ("MI", " ")):
        sign = "-" if negative else positive
        if signs.startswith(mark):
            return f"{sign}{text}" if sign == " " else f"{spaces}{sign}{bare}"
        if signs.endswith(mark):
            return f"{spaces}{bare}{sign}"
    return f"{spaces}{bare}"  # as Spark: a sign that the pattern does not have is not written


def number_of(text: str, pattern: str) -> str | None:
    """Read a number that is written by a pattern of digits, or null if it is not."""
    match = _NUMBER_FORMAT.fullmatch(pattern)
    if match is None:
        return None
    signs, plain = pattern.upper(), text.strip()
    negative = False
    if signs.endswith("PR") and plain.startswith("<") and plain.endswith(">"):
        negative, plain = True, plain[1:-1]
    for mark in ("S", "MI"):
        if signs.startswith(mark) and plain[:1] in ("+", "-"):
            negative, plain = plain[0] == "-", plain[1:]
        elif signs.endswith(mark) and plain[-1:] in ("+", "-"):
            negative, plain = plain[-1] == "-", plain[:-1]
    plain = plain.removeprefix("$") if "$" in signs else plain
    if re.search(r"[A-Z$]", plain) or plain.startswith("-"):
        return None
    whole, _, fraction = plain.partition(".")
    slots = sum(letter in "09" for letter in match[2])
    bare = whole.replace(",", "").strip()
    if len(bare) > slots or len(fraction) > len(match[3] or "") or not re.fullmatch(r"\d*", bare + fraction):
        return None
    if "," in whole and not re.search("[,G]", match[2], re.IGNORECASE):
        return None
    return ("-" if negative else "") + (bare or "0") + (f".{fraction}" if fraction else "")


def micros_to_zone(micros: str, zone: str) -> int | None:
    """Return what a zone's clocks show at a time, as if they showed UTC."""
    ahead = seconds_ahead(zone, int(micros), is_local=False)
    return None if ahead is None else int(micros) + ahead * 1_000_000


def micros_from_zone(micros: str, zone: str) -> int | None:
    """Return the time at which a zone's clocks show what is given."""
    ahead = seconds_ahead(zone, int(micros))
    return None if ahead is None else int(micros) - ahead * 1_000_000


def without_null_fields(text: str) -> str:
    """Return JSON without the fields that are null; nulls in lists stay."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: plain(each) for name, each in value.items() if each is not None}
        return [plain(each) for each in value] if isinstance(value, list) else value

    return json.dumps(plain(json.loads(text)), ensure_ascii=False, separators=(",", ":"))


def title_of(text: str) -> str:
    """Begin each word, which only a space ends, with a capital."""
    words = [word.lower() for word in text.split(" ")]
    return " ".join(word[:1].title() + word[1:] for word in words)


FUNCTIONS: tuple[Function, ...] = (
    declare("format_string", returns="text", python=format_string, arity=3, duckdb_only=_SPARKS_OWN),
    declare("conv", returns="text", python=conv, arity=3, duckdb_only=_SPARKS_OWN),
    declare("split_text", returns="text", python=split_text, arity=3, duckdb_only=_SPARKS_OWN),
    declare("parse_url_part", returns="text", python=parse_url_part, arity=3, duckdb_only=_SPARKS_OWN),
    declare("try_url_decode", returns="text", python=url_decode, arity=1, duckdb_only=_SPARKS_OWN),
    declare("soundex", returns="text", python=soundex, arity=1, duckdb_only=_SPARKS_OWN),
    declare("luhn_check", returns="bool", python=luhn_check, arity=1, duckdb_only=_SPARKS_OWN),
    declare("crc32", returns="long", python=lambda text: zlib.crc32(text.encode()), arity=1, duckdb_only=_SPARKS_OWN),
    declare("text_of_time", returns="text", python=text_of_time, arity=2, duckdb_only=_SPARKS_OWN),
    declare("number_to_char", returns="text", python=number_to_char, arity=2, duckdb_only=_SPARKS_OWN),
    declare("number_of", returns="text", python=number_of, arity=2, duckdb_only=_SPARKS_OWN),
    declare("json_by_type", returns="text", python=json_by_type, arity=2, duckdb_only=_SPARKS_OWN),
    declare("without_null_fields", returns="text", python=without_null_fields, arity=1, duckdb_only=_SPARKS_OWN),
    declare("micros_to_zone", returns="long", python=micros_to_zone, arity=2, duckdb_only=_SPARKS_OWN),
    declare("micros_from_zone", returns="long", python=micros_from_zone, arity=2, duckdb_only=_SPARKS_OWN),
    declare("upper_of_rare", returns="text", python=str.upper, arity=1, duckdb_only=_SPARKS_OWN),
    declare("lower_of_rare", returns="text", python=str.lower, arity=1, duckdb_only=_SPARKS_OWN),
    declare("title_of_rare", returns="text", python=title_of, arity=1, duckdb_only=_SPARKS_OWN),
    declare("number_text", returns="text", python=number_text, arity=1, duckdb_only=_SPARKS_OWN),
    declare("real_of_base_16", returns="real", python=real_of_base_16, arity=1, duckdb_only=_SPARKS_OWN),
    declare("days_of_text", returns="long", python=days_of_text, arity=1, duckdb_only=_SPARKS_OWN),
    declare("micros_of_text", returns="long", python=micros_of_text, arity=1, duckdb_only=_SPARKS_OWN),
    declare("wall_micros_of_text", returns="long", python=wall_micros_of_text, arity=1, duckdb_only=_SPARKS_OWN),
)
