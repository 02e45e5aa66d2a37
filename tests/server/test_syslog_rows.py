"""Syslog messages of both kinds, as daemons write them, and those that are neither."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelake.dynamic.values import decode
from tidelake.server.protocols.syslog import rows_of

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def row_of(text: str | bytes) -> dict[str, Any]:
    data = text if isinstance(text, bytes) else text.encode()
    (row,) = rows_of([(data, "127.0.0.1")], int(NOW.timestamp() * 1e6)).to_pylist()
    return {name: value for name, value in row.items() if value is not None}


def test_a_message_of_the_newer_kind() -> None:
    row = row_of(
        '<165>1 2003-10-11T22:14:15.003Z host.example app 77 ID47 [a@1 k="v\\"\\]" l="2"][b x="y"] \ufeffAn event\n'
    )
    assert row["ts"] == datetime(2003, 10, 11, 22, 14, 15, 3000, tzinfo=UTC)
    assert (row["severity"], row["facility"], row["host"], row["app"]) == ("notice", "local4", "host.example", "app")
    assert (row["process"], row["message_id"], row["message"]) == ("77", "ID47", "An event")
    assert decode(row["data"]) == {"a@1": {"k": 'v"]', "l": "2"}, "b": {"x": "y"}}


def test_a_message_of_the_newer_kind_with_nothing_told() -> None:
    row = row_of("<34>1 - - - - - -")
    assert (row["ts"], row["severity"], row["facility"], row["message"]) == (NOW, "critical", "auth", "")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("<34>Dec 31 22:14:15 mymachine su[12]: 'su root' failed", ("mymachine", "su", "12", "'su root' failed")),
        ("<13>Jan  1 01:02:03 sshd: closed", (None, "sshd", None, "closed")),
        ("<13>2026-01-01T01:02:03.5+01:00 box cron[7]: ran", ("box", "cron", "7", "ran")),
        ("<13>Jan  1 01:02:03 box no tag here", ("box", None, None, "no tag here")),
    ],
)
def test_messages_of_the_older_kind(text: str, wanted: tuple[str | None, ...]) -> None:
    row = row_of(text)
    assert (row.get("host"), row.get("app"), row.get("process"), row["message"]) == wanted


def test_a_day_without_a_year_is_the_nearest() -> None:
    assert row_of("<13>Dec 31 23:59:59 box a: b")["ts"].year == 2025
    assert row_of("<13>Jan  2 00:00:00 box a: b")["ts"].year == 2026


@pytest.mark.parametrize(
    "text", ["hello", "<999>1 - - - - - - x", "<13>", "", "<13>1 noon - - - - - x", b"<13>\xff\xfe"]
)
def test_what_is_neither_is_kept_as_it_is(text: str | bytes) -> None:
    row = row_of(text)
    assert row["ts"] == NOW
    assert "message" in row


@given(st.binary(max_size=300))
def test_any_bytes_are_a_row(data: bytes) -> None:
    assert row_of(data)["sender"] == "127.0.0.1"


@given(st.text(max_size=200))
def test_any_text_after_a_priority_is_a_row(text: str) -> None:
    assert row_of(f"<13>1 {text}")["severity"] == "notice"
