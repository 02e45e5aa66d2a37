"""Messages become rows in columns, and bad ones are found with few tries. It does not need a broker."""

from __future__ import annotations

import orjson
import pytest

from tidelake.ingest.messages import Bad, Messages, Parsed, messages_of, parsed, parted

AT_US = 1_767_225_600_000_000
AT = ("2026-01-01T00:00:00+00:00", "2026-01-01T00:00:00.000000Z")


def messages(*values: bytes | None, at_us: int | None = AT_US) -> Messages:
    return messages_of(values, [("t", 0, n) for n in range(len(values))], [at_us] * len(values))


def lines(*values: bytes | None, time: str | None = "ts", at_us: int | None = AT_US) -> list[bytes]:
    rows, bad = parsed(messages(*values, at_us=at_us), time)
    assert bad == []
    return bytes(rows.source()).split(b"\n")[:-1]


def wrong(*values: bytes) -> list[Bad]:
    return parsed(messages(*values), "ts")[1]


def test_messages_that_name_their_time_are_taken_as_they_are() -> None:
    values = [b'{"ts":1,"a":2}', b' {"a":3, "ts":"x"} ', b"no json"]
    assert lines(*values) == values


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b'{"a":1}', {"a": 1}),
        (b"{}", {}),
        (b"{ }", {}),
        (b'{"a":1,"ts":null}', {"a": 1}),
        (b'{"a":"\xc3\xa4","b":{"ts":null}}', {"a": "ä", "b": {"ts": None}}),
        (b'{\n"a": 1}', {"a": 1}),
    ],
)
def test_a_message_without_a_time_gets_its_brokers(value: bytes, expected: dict[str, object]) -> None:
    _, line = lines(b'{"ts":1}', value)
    found = orjson.loads(line)
    assert found.pop("ts") in AT
    assert found == expected


def test_a_time_in_several_lines_is_kept() -> None:
    assert lines(b'{\n"ts": 5}') == [b'{"ts":5}']


def test_what_the_broker_does_not_know_is_left_out() -> None:
    assert lines(b'{"a":1}', at_us=None) == [b'{"a":1}']
    assert lines(b'{"a":1}', time=None) == [b'{"a":1}']


def test_messages_without_a_value_are_passed_over() -> None:
    assert lines(b"", None) == []
    rows, _ = parsed(messages(b"", b'{"ts":1}', None), "ts")
    assert (bytes(rows.source()), rows.at.tolist()) == (b'{"ts":1}\n', [1])


def test_what_is_read_alone_and_is_no_object_says_why() -> None:
    assert wrong(b'{"ts":1}', b"[1,\n2]") == [(1, "not an object")]
    ((at, reason),) = wrong(b'{"a":\n')
    assert (at, reason.startswith("not JSON")) == (0, True)


def test_bad_messages_among_many_are_found_with_few_tries() -> None:
    several, _ = parsed(messages(*(b'{"ts":%d}' % n for n in range(10_000))), "ts")
    tries = 0

    def is_bad(part: Parsed) -> str | None:
        nonlocal tries
        tries += 1
        found = bytes(part.source()).split(b"\n")
        return "bad" if b'{"ts":7}' in found or b'{"ts":9000}' in found else None

    good, bad = parted(several, is_bad)
    assert bad == [(7, "bad"), (9000, "bad")]
    assert good.at.tolist() == [n for n in range(10_000) if n not in (7, 9000)]
    assert bytes(good.source()) == b"".join(b'{"ts":%d}\n' % n for n in good.at)
    assert tries < 100
