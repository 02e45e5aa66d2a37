"""Make lines of JSON of messages that a broker delivered, without a look at each where they are as most are.

A message is a JSON object, and becomes a line. One that does not name the table's time gets the broker's own time for
it, written in front: of a key that comes twice the last counts. Messages with line breaks in them, or with a time that
is null, are read and written again one by one. What is no JSON is found by whoever reads the lines: ``halves`` helps to
find the bad ones among many with few tries. It does not know brokers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import orjson
import pyarrow as pa
import pyarrow.compute as pc


@dataclass(frozen=True, slots=True)
class Message:
    """A message: its value, where it came from, and when, if the broker knows."""

    value: bytes
    source: str
    at_us: int | None


@dataclass(frozen=True, slots=True)
class Line:
    """A message as a line of JSON, or why it cannot be one."""

    message: Message
    text: bytes
    wrong: str | None = None


def lines_of(messages: Sequence[Message], time: str | None) -> list[Line]:
    """Return messages as lines, in their order; those without a value are left out."""
    held = [each for each in messages if each.value]
    if not held:
        return []
    values = pa.array([each.value for each in held], pa.large_binary())
    is_odd = pc.match_substring(values, "\n")
    lacks_time = pa.array([False]).take(pa.array([0] * len(held)))
    if time is not None:
        name = orjson.dumps(time).decode()
        lacks_time = pc.and_(pc.invert(pc.match_substring(values, name)), pc.starts_with(values, "{"))
        is_odd = pc.or_(is_odd, pc.match_substring_regex(values, _quoted(name) + r"\s*:\s*null"))
    if not pc.any(is_odd).as_py() and not pc.any(lacks_time).as_py():
        return [Line(each, each.value) for each in held]
    flags = zip(held, is_odd.to_pylist(), lacks_time.to_pylist(), strict=True)
    return [_alone(each, time) if odd else _timed(each, time) if lacks else Line(each, each.value)
            for each, odd, lacks in flags]  # fmt: skip


def parted(lines: Sequence[Line], is_bad: Callable[[Sequence[Line]], str | None]) -> tuple[list[Line], list[Line]]:
    """Part lines into good ones and, each with what is wrong with it, bad ones; ``is_bad`` judges several at once."""
    good: list[Line] = []
    bad: list[Line] = []
    for part in _halves(list(lines), is_bad):
        wrong = is_bad(part) if len(part) == 1 else None
        if wrong is None:
            good += part
        else:
            bad.append(Line(part[0].message, part[0].text, wrong))
    return good, bad


def _halves(lines: list[Line], is_bad: Callable[[Sequence[Line]], str | None]) -> Iterator[list[Line]]:
    """Yield runs of lines that are good together, and single ones; few bad lines among many take few tries."""
    if len(lines) <= 1 or is_bad(lines) is None:
        if lines:
            yield lines
        return
    middle = len(lines) // 2
    yield from _halves(lines[:middle], is_bad)
    yield from _halves(lines[middle:], is_bad)


def _quoted(text: str) -> str:
    """Return a regular expression that means a text."""
    return "".join(each if each.isalnum() or each == "_" or ord(each) > 127 else "\\" + each for each in text)


def _timed(message: Message, time: str | None) -> Line:
    if message.at_us is None or time is None:
        return Line(message, message.value)
    at = datetime.fromtimestamp(message.at_us / 1e6, UTC).isoformat()
    rest = message.value[1:]
    comma = b"" if rest.lstrip()[:1] == b"}" else b","
    return Line(message, b'{%b:"%b"%b%b' % (orjson.dumps(time), at.encode(), comma, rest))


def _alone(message: Message, time: str | None) -> Line:
    """Read a message and write it again, in one line and with a time."""
    try:
        value = orjson.loads(message.value)
    except ValueError as error:
        return Line(message, b"", f"not JSON: {error}")
    if not isinstance(value, dict):
        return Line(message, b"", "not an object")
    if time is not None and value.get(time) is None and message.at_us is not None:
        value[time] = datetime.fromtimestamp(message.at_us / 1e6, UTC).isoformat()
    return Line(message, orjson.dumps(value))
