"""Messages become lines without a look at each, and bad ones are found with few tries. It does not need a broker."""

from __future__ import annotations

from collections.abc import Sequence

import orjson
import pytest

from tidelake.ingest.messages import Line, Message, lines_of, parted

AT_US = 1_767_225_600_000_000
AT = "2026-01-01T00:00:00+00:00"


def lines(*values: bytes, time: str | None = "ts", at_us: int | None = AT_US) -> list[Line]:
    return lines_of([Message(value, "t/0/0", at_us) for value in values], time)


def test_messages_that_name_their_time_are_taken_as_they_are() -> None:
    values = [b'{"ts":1,"a":2}', b' {"a":3, "ts":"x"} ', b"no json"]
    assert [each.text for each in lines(*values)] == values


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b'{"a":1}', {"ts": AT, "a": 1}),
        (b"{}", {"ts": AT}),
        (b"{ }", {"ts": AT}),
        (b'{"a":1,"ts":null}', {"ts": AT, "a": 1}),
        (b'{"a":"\xc3\xa4","b":{"ts":null}}', {"a": "ä", "b": {"ts": None}, "ts": AT}),
        (b'{\n"a": 1}', {"ts": AT, "a": 1}),
        (b'{\n"ts": 5}', {"ts": 5}),
    ],
)
def test_a_message_without_a_time_gets_its_brokers(value: bytes, expected: dict[str, object]) -> None:
    (line,) = lines(value)
    assert orjson.loads(line.text) == expected
    assert b"\n" not in line.text


def test_what_the_broker_does_not_know_is_left_out() -> None:
    assert [each.text for each in lines(b'{"a":1}', at_us=None)] == [b'{"a":1}']
    assert [each.text for each in lines(b'{"a":1}', time=None)] == [b'{"a":1}']


def test_messages_without_a_value_are_passed_over() -> None:
    assert lines(b"") == []
    assert [each.text for each in lines(b"", b'{"ts":1}')] == [b'{"ts":1}']


def test_what_is_read_alone_and_is_no_object_says_why() -> None:
    assert [each.wrong for each in lines(b"[1,\n2]")] == ["not an object"]
    (line,) = lines(b'{"a":\n')
    assert line.wrong is not None
    assert line.wrong.startswith("not JSON")


def test_bad_messages_among_many_are_found_with_few_tries() -> None:
    several = lines(*(b'{"ts":%d}' % n for n in range(10_000)))
    tries = 0

    def is_bad(part: Sequence[Line]) -> str | None:
        nonlocal tries
        tries += 1
        return "bad" if any(each.text in (b'{"ts":7}', b'{"ts":9000}') for each in part) else None

    good, bad = parted(several, is_bad)
    assert [(each.text, each.wrong) for each in bad] == [(b'{"ts":7}', "bad"), (b'{"ts":9000}', "bad")]
    assert [each.text for each in good] == [
        each.text for each in several if each.text not in (b'{"ts":7}', b'{"ts":9000}')
    ]
    assert tries < 100
