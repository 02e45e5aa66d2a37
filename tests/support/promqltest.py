"""Run the scripts in which Prometheus tests PromQL: series are loaded into a table of a lake, and expressions asked.

The scripts are Prometheus' own and are not kept here: who runs them says where they are. What they say about warnings
is passed over, and so is the text of errors. It does not know native histograms: evaluations that need them are told
apart by ``Outcome.cause``.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from tidelake.dynamic import encode
from tidelake.errors import QueryError, TidelakeError
from tidelake.lake import Lake
from tidelake.query.promql.reading import duration_ms

NATIVE = "native histograms"
STALE_NAN = struct.unpack("<d", struct.pack("<Q", 0x7FF0000000000002))[0]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
CLOSE = 1e-6  # by which Prometheus lets answers differ
_EVAL = re.compile(
    r"eval(?P<old>_fail|_ordered|_warn|_info)?\s+(?:instant\s+at\s+(?P<at>\S+)|range\s+from\s+(?P<from>\S+)\s+to\s+(?P<to>\S+)\s+step"
    r"\s+(?P<step>\S+))\s+(?P<query>.+)",
    re.S,
)
_PAIR = re.compile(r'\s*("(?:[^"\\]|\\.)*"|[\w.:]+)\s*(?:=\s*("(?:[^"\\]|\\.)*"|\'[^\']*\'|`[^`]*`))?\s*,?')
_POINT = re.compile(
    r"(?P<first>[-+]?(?:[\d.]+(?:e[-+]?\d+)?|inf|nan))(?P<by>[-+](?:[\d.]+(?:e[-+]?\d+)?|inf|nan))?x(?P<times>\d+)",
    re.I,
)
_NATIVE_ONLY = re.compile(r"histogram_(?:count|sum|avg|stddev|stdvar|quantiles)\b|</|>/")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one evaluation; ``cause`` is empty if the answer was as expected."""

    file: str
    line: int
    query: str
    cause: str = ""
    detail: str = ""


@dataclass(slots=True)
class Script:
    """A script as it runs: the lake it loads into, and which metrics have native histograms."""

    lake: Lake
    name: str
    table: str = ""
    native: set[str] = field(default_factory=set)

    def run(self, text: str) -> Iterator[Outcome]:
        """Yield what becomes of each evaluation."""
        self.clear()
        for line, command in _commands(text):
            head = command[0].split()[0]
            if head == "clear":
                self.clear()
            elif head.startswith("load"):
                self.load(command, with_buckets=head == "load_with_nhcb")
            else:
                yield self.evaluate(line, command)

    def clear(self) -> None:
        """Begin with an empty table."""
        if self.table:
            self.lake.drop_table(self.table)
        self.table, self.native = f"s{id(self)}_{len(self.lake.tables())}", set()
        columns = {"ts": "timestamp", "name": "string", "labels": "dynamic", "value": "real"}
        self.lake.create_table(self.table, columns, time="ts", upkeep=False, flush_age="off")

    def load(self, command: Sequence[str], *, with_buckets: bool) -> None:
        """Append the samples of some series."""
        width = _ms(command[0].split()[1])
        times, names, labels, values = [], [], [], []
        for line in command[1:]:
            if "@st" in line:  # when counters began, which a table of samples does not have
                continue
            held, points = _series(line)
            name = held.pop("__name__", "")
            if "{{" in points:
                self.native.add(name)
                continue
            if with_buckets:
                self.native.add(re.sub(r"_(bucket|sum|count)$", "", name))
            for at, value in enumerate(_points(points)):
                if value is not None:
                    times.append(at * width * 1000)
                    names.append(name)
                    labels.append(encode(held))
                    values.append(value)
        if not times:
            return
        schema = self.lake.table(self.table).schema.arrow
        arrays = [
            pa.array(times, pa.int64()).cast(pa.timestamp("us", tz="UTC")).cast(schema.field("ts").type),
            pa.array(names, pa.string()),
            pa.array(labels, pa.binary()),
            pa.array(values, pa.float64()),
        ]
        marked = pa.field("labels", pa.binary(), metadata={"tidelake.type": "dynamic"})
        fields = [schema.field("ts"), pa.field("name", pa.string()), marked, pa.field("value", pa.float64())]
        self.lake.table(self.table).append(pa.table(arrays, schema=pa.schema(fields)))

    def evaluate(self, line: int, command: Sequence[str]) -> Outcome:
        """Ask one expression and compare."""
        match = _EVAL.fullmatch(command[0])
        if match is None:
            return Outcome(self.name, line, command[0], "not understood by this runner")
        query, said = match["query"].strip(), [each.strip() for each in command[1:]]
        expected = [each for each in said if not each.startswith("expect")]
        told = [each for each in said if each.startswith("expect")]
        if self._is_native(query, expected):
            return Outcome(self.name, line, query, NATIVE)
        fails = match["old"] == "_fail" or any(each.startswith("expect fail") for each in told)
        times: dict[str, Any] = (
            {"time": _when(match["at"])}
            if match["at"]
            else {"start": _when(match["from"]), "end": _when(match["to"]), "step": _ms(match["step"]) / 1000}
        )
        try:
            answer = self.lake.promql(query, table=self.table, **times).to_prometheus()
        except QueryError as error:
            if fails and error.kind != "unsupported":
                return Outcome(self.name, line, query)
            cause = {"syntax": "not parsed", "unsupported": "not supported"}.get(error.kind, "refused")
            return Outcome(self.name, line, query, cause, error.message.split("\n")[0])
        except TidelakeError as error:
            return Outcome(self.name, line, query, "" if fails else "refused", str(error))
        except Exception as error:
            return Outcome(self.name, line, query, "broken", repr(error))
        if fails:
            return Outcome(self.name, line, query, "not refused")
        ordered = match["old"] == "_ordered" or any(each.startswith("expect ordered") for each in told)
        wrong = _difference(answer, expected, told, match, ordered)
        return Outcome(self.name, line, query, "another answer" if wrong else "", wrong)

    def _is_native(self, query: str, expected: Sequence[str]) -> bool:
        named = any(name and re.search(rf"(?<![\w:]){re.escape(name)}(?![\w:])", query) for name in self.native)
        regex = any(re.search(r"__name__\s*=~", query) for _ in self.native)
        return named or regex or any("{{" in each for each in expected) or bool(_NATIVE_ONLY.search(query))


def _difference(
    answer: dict[str, Any], expected: Sequence[str], told: Sequence[str], match: re.Match[str], ordered: bool
) -> str:
    """Return how an answer differs from what is expected, or nothing."""
    kind, result = answer["resultType"], answer["result"]
    if kind == "string":
        wanted = next((each.partition("expect string")[2].strip() for each in told if "expect string" in each), None)
        return "" if wanted is not None and wanted[1:-1] == result[1] else f"found {result[1]!r}"
    if kind == "scalar":
        value = _points(expected[0])[0] if expected else None
        return "" if value is not None and _is_close(value, _number(result[1])) else f"found {result[1]}"
    wanted_series = []
    for each in expected:
        labels, points = _series(each)
        wanted_series.append((labels, _points(points)))
    if match["at"] and kind == "vector":
        found = [(each["metric"], {0: _number(each["value"][1])}) for each in result]
        wants = [(labels, {0: values[0]}) for labels, values in wanted_series]
    else:
        start, step = _ms(match["from"] or "0"), _ms(match["step"] or "1")
        for each in told:
            if each.startswith("expect range vector"):
                words = each.split()
                start, step = _ms(words[4]), _ms(words[8])
        found = [(each["metric"], {round(t * 1000): _number(v) for t, v in each["values"]}) for each in result]
        wants = [
            (labels, {start + at * step: value for at, value in enumerate(values) if value is not None})
            for labels, values in wanted_series
        ]
    if ordered and [each for each, _ in found] != [each for each, _ in wants]:
        return f"another order: {[each for each, _ in found]}"
    held: dict[Any, dict[int, float]] = {tuple(sorted(labels.items())): points for labels, points in found}
    asked: dict[Any, dict[int, float | None]] = {tuple(sorted(labels.items())): points for labels, points in wants}
    if len(held) != len(found):
        return "a label set twice"
    for each_set in held.keys() | asked.keys():
        mine, theirs = held.get(each_set), asked.get(each_set)
        if mine is None or theirs is None:
            return f"{dict(each_set)}: found {mine}, expected {theirs}"
        if mine.keys() != theirs.keys() or not all(_is_close(theirs[at] or 0.0, mine[at]) for at in mine):
            return f"{dict(each_set)}: found {mine}, expected {theirs}"
    return ""


def _commands(text: str) -> Iterator[tuple[int, list[str]]]:
    """Yield commands with the lines that belong to them."""
    begun: list[str] = []
    first = 0
    for number, raw in enumerate(text.splitlines(), 1):
        line = "" if raw.lstrip().startswith("#") else raw.rstrip()
        if re.match(r"(eval\w*|load\w*|clear)\b", line.strip()):
            if begun:
                yield first, begun
            begun, first = [line.strip()], number
        elif line.strip() and begun:
            begun.append(line.strip())
    if begun:
        yield first, begun


def _series(line: str) -> tuple[dict[str, str], str]:
    """Return the labels of a series and what follows them."""
    labels: dict[str, str] = {}
    name = re.match(r"[a-zA-Z_:][\w:.]*(?=[\s{]|$)", line)
    rest = line
    if name and not re.fullmatch(r"(?i)nan|inf|stale", name[0]):
        labels["__name__"] = name[0]
        rest = line[name.end() :]
    rest = rest.lstrip()
    if not rest.startswith("{") or rest.startswith("{{"):
        return labels, rest
    at = 1
    while rest[at:].lstrip()[:1] != "}":
        pair = _PAIR.match(rest, at)
        assert pair, line
        key, value = pair[1], pair[2]
        if value is None:
            labels["__name__"] = _unquoted(key)
        else:
            labels[_unquoted(key)] = _unquoted(value)
        at = pair.end()
    return {key: value for key, value in labels.items() if value}, rest[rest.index("}", at) + 1 :].strip()


def _unquoted(text: str) -> str:
    if text[0] not in "\"'`":
        return text
    inner = text[1:-1]
    return inner if text[0] == "`" or "\\" not in inner else inner.encode().decode("unicode_escape")


def _points(text: str) -> list[float | None]:
    """Return the values that a line has; None where there is none."""
    found: list[float | None] = []
    for word in text.split():
        if match := _POINT.fullmatch(word):
            first, by = _number(match["first"]), _number(match["by"] or "0")
            found += [first + by * at if at and by else first for at in range(int(match["times"]) + 1)]
        elif re.fullmatch(r"_(x\d+)?", word):
            found += [None] * int(word[2:] or 1)
        elif match := re.fullmatch(r"stale(?:x(\d+))?", word):
            found += [STALE_NAN] * (int(match[1] or 0) + 1)
        else:
            found.append(_number(word))
    return found


def _number(text: str) -> float:
    return float(int(text, 0)) if text.lower().startswith("0x") else float(text)


def _ms(text: str) -> int:
    sign = -1 if text.startswith("-") else 1
    return sign * duration_ms(text.lstrip("-+"))


def _when(text: str) -> datetime:
    return EPOCH + timedelta(milliseconds=_ms(text))


def _is_close(wanted: float, found: float) -> bool:
    if math.isnan(wanted) or math.isnan(found):
        return math.isnan(wanted) and math.isnan(found)
    if wanted == found:
        return True
    return abs(wanted - found) <= CLOSE * (abs(wanted) + abs(found)) or abs(wanted - found) < CLOSE * 1e-6
