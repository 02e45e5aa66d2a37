"""Hold the portable functions that no SQL can write well: addresses, URLs, XML, formats.

Each is a function of one row's texts. An engine hands over whole Arrow arrays; equal rows are computed once. It does
not touch values that SQL can.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import zip_longest
from typing import Any
from urllib.parse import parse_qsl, quote, quote_plus, unquote_plus, urlsplit
from xml.parsers import expat

import pyarrow as pa

from tidelake.query.functions.addresses import ADDRESSES
from tidelake.query.functions.conversions import CODEC, decoded
from tidelake.query.functions.pairs import PAIRS
from tidelake.query.functions.patterns import TIME_PART
from tidelake.query.functions.places import PLACES
from tidelake.query.functions.series import SERIES, dumped
from tidelake.query.functions.text import TEXT
from tidelake.query.functions.units import UNITS
from tidelake.query.kql.literals import TICKS_PER_DAY, TICKS_PER_SECOND, parse_span

MAX_ROWS_SEEN = 10_000  # results kept for rows that repeat
# What a function raises for a row that it has no answer for: the answer is null.
_NO_ANSWER = (
    ValueError,
    TypeError,
    LookupError,
    ArithmeticError,
    AttributeError,
    RecursionError,
    StopIteration,
    csv.Error,
    re.error,
    struct.error,
    zlib.error,
    expat.ExpatError,
)

_ARROW = {"text": pa.string(), "json": pa.string(), "bool": pa.bool_(), "long": pa.int64(), "real": pa.float64()}
_DUCKDB = {"text": "VARCHAR", "json": "VARCHAR", "bool": "BOOLEAN", "long": "BIGINT", "real": "DOUBLE"}
_SPARK = {"text": "string", "json": "string", "bool": "boolean", "long": "bigint", "real": "double"}


@dataclass(frozen=True, slots=True)
class PythonFunction:
    """A function of one row's texts, with how many it takes and what it gives."""

    name: str
    apply: Callable[..., Any]
    arity: int
    result: str

    def call(self, texts: Sequence[str], engine: str) -> str:
        """Write a call; arguments that are left out are null."""
        kind = "VARCHAR" if engine == "duckdb" else "STRING"
        given = [f"CAST({text} AS {kind})" for text in texts]
        given += [f"CAST(NULL AS {kind})"] * (self.arity - len(given))
        written = f"{self.name}({', '.join(given)})"
        if self.result != "json":
            return written
        return f"CAST({written} AS JSON)" if engine == "duckdb" else f"try_parse_json({written})"

    def over(self, *columns: pa.Array) -> pa.Array:
        """Compute the function for each row of some arrays of text."""
        seen: dict[tuple[Any, ...], Any] = {}
        out: list[Any] = []
        for row in zip(*(column.to_pylist() for column in columns), strict=True):
            if row not in seen:
                if len(seen) > MAX_ROWS_SEEN:
                    seen.clear()
                seen[row] = self._safely(row)
            out.append(seen[row])
        return pa.array(out, _ARROW[self.result])

    def _safely(self, row: tuple[Any, ...]) -> Any:
        if row[0] is None:
            return None
        try:
            return self.apply(*row)
        except _NO_ANSWER:
            return None

    def register_duckdb(self, connection: Any) -> None:
        parameters = ["VARCHAR"] * self.arity
        result = _DUCKDB[self.result]
        connection.create_function(
            self.name, self._of_arrays(), parameters, result, type="arrow", null_handling="special"
        )

    def register_spark(self, session: Any) -> None:
        from pyspark.sql.functions import arrow_udf  # type: ignore[attr-defined]  # the stubs are older than Spark

        session.udf.register(self.name, arrow_udf(_annotated(self._of_arrays(), self.arity), _SPARK[self.result]))

    def _of_arrays(self) -> Callable[..., pa.Array]:
        """Give the function with its number of parameters, which engines look at."""
        over = self.over
        functions: dict[int, Callable[..., pa.Array]] = {
            1: lambda a: over(a),
            2: lambda a, b: over(a, b),
            3: lambda a, b, c: over(a, b, c),
        }
        return functions[self.arity]


def _annotated(function: Any, arity: int) -> Any:
    """Say the types of arrays, which Spark reads to know what it hands over."""
    names = function.__code__.co_varnames[:arity]
    function.__annotations__ = {**dict.fromkeys(names, pa.Array), "return": pa.Array}
    return function


def parse_url(text: str) -> str:
    parts = urlsplit(text)
    host = parts.hostname or ""
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    return dumped({
        "Scheme": parts.scheme, "Host": host, "Port": str(parts.port or ""), "Path": parts.path,
        "Username": parts.username or "", "Password": parts.password or "", "Query Parameters": query,
        "Fragment": parts.fragment,
    })  # fmt: skip


def parse_urlquery(text: str) -> str:
    return dumped({"Query Parameters": dict(parse_qsl(text.lstrip("?"), keep_blank_values=True))})


def parse_path(text: str) -> str:
    """Take a path apart: of its drive and of a stream only a letter and a name after the file's count."""
    scheme, mark, rest = text.partition("://")
    path = rest if mark else text
    drive = path[:2] if path[1:2] == ":" and path[:1].isalpha() else ""
    last = max(path.rfind("/"), path.rfind("\\"))
    folder = path[len(drive) : max(last, len(drive))]
    name, _, stream = path[max(last + 1, len(drive)) :].partition(":")
    return dumped({
        "Scheme": scheme if mark else "", "RootPath": drive, "DirectoryPath": drive + folder,
        "DirectoryName": re.split(r"[/\\]", folder)[-1], "Filename": name,
        "Extension": name.rpartition(".")[2] if "." in name else "", "AlternateDataStreamName": stream,
    })  # fmt: skip


def parse_csv(text: str) -> str:
    """Give the fields of the first record."""
    return dumped(next(csv.reader(io.StringIO(text, newline="")), None) or [""])


def parse_xml(text: str) -> str:
    """Read XML as nested maps: attributes under ``@name``, text under ``#text``, repeats as a list."""
    stack: list[dict[str, Any]] = [{}]
    parser = expat.ParserCreate()

    def start(name: str, attributes: dict[str, str]) -> None:
        if len(stack) > 100:
            raise ValueError("nested too deeply")
        stack.append({f"@{key}": value for key, value in attributes.items()})

    def data(words: str) -> None:
        if words.strip():
            stack[-1]["#text"] = stack[-1].get("#text", "") + words

    def end(name: str) -> None:
        node = stack.pop()
        value: Any = node.get("#text", "") if set(node) <= {"#text"} else node
        held = stack[-1].get(name)
        if held is None:
            stack[-1][name] = value
        elif isinstance(held, list):
            held.append(value)
        else:
            stack[-1][name] = [held, value]

    parser.StartElementHandler, parser.CharacterDataHandler, parser.EndElementHandler = start, data, end
    parser.EntityDeclHandler = _refuse
    parser.Parse(text, True)
    return dumped(stack[0])


def _refuse(*_: Any) -> None:
    raise ValueError("entities are not read")


def parse_command_line(text: str, kind: str | None) -> str:
    """Split a command as Windows does: quotes hold words together, and backslashes count only before a quote."""
    if kind is not None and kind.lower() != "windows":
        raise ValueError("only windows is known")
    found: list[str] = []
    word: str | None = None
    at, quoted = 0, False
    while at < len(text):
        slashes = len(text[at:]) - len(text[at:].lstrip("\\"))
        at += slashes
        is_quote = text[at : at + 1] == '"'
        if slashes:
            word = (word or "") + "\\" * (slashes // 2 if is_quote else slashes)
        if is_quote and slashes % 2:
            word = (word or "") + '"'
        elif is_quote:
            doubled = quoted and text[at + 1 : at + 2] == '"'
            word = (word or "") + ('"' if doubled else "")
            at += doubled
            quoted = not quoted
        elif text[at : at + 1] in (" ", "\t") and not quoted:
            found += [word] if word is not None else []
            word = None
        else:
            word = (word or "") + text[at : at + 1] if at < len(text) else word
        at += 1
    return dumped([*found, word] if word is not None else found)


def format_timespan(ticks: str, pattern: str) -> str:
    total = abs(int(ticks))
    days, rest = divmod(total, TICKS_PER_DAY)
    seconds, fraction = divmod(rest, TICKS_PER_SECOND)
    values = {"d": days, "H": seconds // 3600, "h": seconds // 3600, "m": seconds // 60 % 60, "s": seconds % 60}
    out, at = "", 0
    while at < len(pattern):
        letter, run = pattern[at], 1
        while at + run < len(pattern) and pattern[at + run] == letter:
            run += 1
        if letter in values:
            out += str(values[letter]).zfill(run)
        elif letter in "fF":
            digits = f"{fraction:07}"[:run]
            out += digits.rstrip("0") if letter == "F" else digits
        else:
            out += letter * run
        at += run
    return ("-" if int(ticks) < 0 else "") + out


def format_datetime(micros: str, pattern: str) -> str:
    value = datetime.fromtimestamp(int(micros) // 1_000_000, UTC)
    fraction = f"{int(micros) % 1_000_000:06}0"
    hour = value.hour % 12 or 12
    simple = {
        "yyyy": f"{value.year:04}", "yy": f"{value.year % 100:02}", "y": str(value.year % 100),
        "MM": f"{value.month:02}", "M": str(value.month),
        "dd": f"{value.day:02}", "d": str(value.day), "HH": f"{value.hour:02}", "H": str(value.hour),
        "hh": f"{hour:02}", "h": str(hour), "mm": f"{value.minute:02}", "m": str(value.minute),
        "ss": f"{value.second:02}", "s": str(value.second), "tt": "AM" if value.hour < 12 else "PM",
    }  # fmt: skip
    out = ""
    for piece in TIME_PART.findall(pattern):
        if piece[0] in "fF":
            digits = fraction[: len(piece)]
            out += digits.rstrip("0") if piece[0] == "F" else digits
        else:
            out += simple.get(piece, piece)
    return out


def to_timespan(text: str) -> int:
    return parse_span(text)


def url_encode_form(text: str) -> str:
    """Encode as forms do: a space is a plus, and digits are in lower case."""
    encoded = quote_plus(text, safe="!()*").replace("~", "%7e")
    return re.sub("%[0-9A-F]{2}", lambda found: found[0].lower(), encoded)


def url_encode(text: str) -> str:
    return quote(text, safe="")


def base64_to_array(text: str) -> str:
    return dumped(list(decoded(text)))


def codepoints(text: str) -> str:
    return dumped([ord(letter) for letter in text])


def from_codepoints(array: str) -> str:
    """Join letters by their numbers, given alone or in arrays."""
    value = json.loads(array)
    if isinstance(value, list):
        return "".join(from_codepoints(json.dumps(each)) for each in value)
    return chr(int(value))


def punycode_encode(text: str) -> str:
    return text.encode("punycode").decode()


def punycode_decode(text: str) -> str:
    return text.encode().decode("punycode")


def punycode_domain_encode(text: str) -> str:
    parts = re.split("[.\u3002\uff0e\uff61]", text)  # the dots of other scripts part a domain too
    return ".".join(part if part.isascii() else "xn--" + punycode_encode(part) for part in parts)


def punycode_domain_decode(text: str) -> str:
    return ".".join(punycode_decode(part[4:]) if part[:4].lower() == "xn--" else part for part in text.split("."))


def bag_zip(keys: str, values: str) -> str:
    """Make a bag of keys and values: a key without a value has null, and what is no text is no key."""
    names, held = json.loads(keys), json.loads(values)
    if not isinstance(names, list) or not isinstance(held, list):
        raise ValueError("no arrays")
    given = zip_longest(names, held[: len(names)])
    return dumped({name: value for name, value in given if isinstance(name, str)})


def session_starts(rows: str, first: str, between: str) -> str:
    """Give each row's place and where its session began, from ``[place, value, restarts]`` of all rows in order."""
    longest, widest = int(first), int(between)
    out: list[tuple[int, int | None]] = []
    start: int | None = None
    before: int | None = None
    for place, value, again in json.loads(rows):
        if value is not None and (
            start is None or before is None or again or value >= start + longest or value >= before + widest
        ):
            start = value
        out.append((place, None if value is None else start))
        before = value
    return dumped(out)


def jaccard(one: str, other: str) -> float:
    first, second = ({json.dumps(item, sort_keys=True) for item in json.loads(side)} for side in (one, other))
    return len(first & second) / len(first | second)


def array_rotate(array: str, places: str, direction: int) -> str:
    items = json.loads(array)
    shift = direction * int(places) % len(items) if items else 0
    return dumped(items[shift:] + items[:shift])


def format_bytes(size: str, precision: str | None, unit: str | None) -> str:
    units = ("Bytes", "KB", "MB", "GB", "TB", "PB", "EB")
    value, at = float(size), 0
    while at + 1 < len(units) and (units[at] != unit if unit else abs(value) >= 1024):
        value, at = value / 1024, at + 1
    rounded = round(value, int(precision) if precision else 0)
    return f"{rounded:g} {units[at]}" if rounded == int(rounded) else f"{rounded} {units[at]}"


def _entry(name: str, apply: Callable[..., Any], arity: int, result: str) -> tuple[str, PythonFunction]:
    return name, PythonFunction(name, apply, arity, result)


PYTHON_FUNCTIONS: dict[str, PythonFunction] = dict(
    (
        *(_entry(*each) for each in (*SERIES, *CODEC, *ADDRESSES, *PLACES, *UNITS, *TEXT, *PAIRS)),
        _entry("tide_erf", lambda x: math.erf(float(x)), 1, "real"),
        _entry("tide_erfc", lambda x: math.erfc(float(x)), 1, "real"),
        _entry("tide_gamma", lambda x: math.gamma(float(x)), 1, "real"),
        _entry("tide_loggamma", lambda x: math.lgamma(float(x)), 1, "real"),
        _entry("tide_session_starts", session_starts, 3, "json"),
        _entry("tide_parse_url", parse_url, 1, "json"),
        _entry("tide_parse_urlquery", parse_urlquery, 1, "json"),
        _entry("tide_parse_path", parse_path, 1, "json"),
        _entry("tide_parse_csv", parse_csv, 1, "json"),
        _entry("tide_parse_xml", parse_xml, 1, "json"),
        _entry("tide_parse_command_line", parse_command_line, 2, "json"),
        _entry("tide_format_timespan", format_timespan, 2, "text"),
        _entry("tide_format_datetime_python", format_datetime, 2, "text"),
        _entry("tide_to_timespan_from_string", to_timespan, 1, "long"),
        _entry("tide_url_encode", url_encode, 1, "text"),
        _entry("tide_url_encode_form", url_encode_form, 1, "text"),
        _entry("tide_url_decode", unquote_plus, 1, "text"),
        _entry("tide_base64_decode", lambda text: decoded(text).decode(), 1, "text"),
        _entry("tide_base64_to_array", base64_to_array, 1, "json"),
        _entry("tide_codepoints", codepoints, 1, "json"),
        _entry("tide_from_codepoints", from_codepoints, 1, "text"),
        _entry("tide_jaccard", jaccard, 2, "real"),
        _entry("tide_array_rotate_left", lambda a, n: array_rotate(a, n, 1), 2, "json"),
        _entry("tide_array_rotate_right", lambda a, n: array_rotate(a, n, -1), 2, "json"),
        _entry("tide_format_bytes", format_bytes, 3, "text"),
        _entry("tide_bag_zip", bag_zip, 2, "json"),
        _entry("tide_punycode_encode", punycode_encode, 1, "text"),
        _entry("tide_punycode_decode", punycode_decode, 1, "text"),
        _entry("tide_punycode_domain_encode", punycode_domain_encode, 1, "text"),
        _entry("tide_punycode_domain_decode", punycode_domain_decode, 1, "text"),
    )
)
