"""Compare the loops that read text with the plain way, which defines them."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelake.ingest import text_columns, time_formats
from tidelake.ingest.instants import NO_TIME, text_buffers
from tidelake.ingest.text_columns import classify
from tidelake.ingest.time_detection import FORMATS, choose_format
from tidelake.ingest.time_formats import RFC_3339, few_times, times_in

NOW_US = 1_773_489_600_000_000  # 2026-03-14T12:00:00Z
VALUES = [
    "", " ", "0", "-0", "5", " 5 ", "007", "-12", "1.5", "1.", ".5", ".", "-.5e3", "1e5", "1e", "1e+", "1.5E-3", "--1",
    "9223372036854775807", "9223372036854775808", "-9223372036854775808", "1" * 60, "true", "FALSE", "tru", "NaN",
    "null", "N/A", "\\N", "#N/A", "inf", "-Infinity", "Infinit", "2026-03-14", "2026-03-14T12:00:00Z", "2026-13-14",
    "2026-03-14 12", "1.234", "1.234,5", "12.34,5", "1,5", ",5", "1,", "1.234.567", "1234.567,8", "0,25", "00,25",
    "0.234,5", "1\n2", "x", "-", "INFO", "1 2", "é",
]  # fmt: skip


@pytest.mark.parametrize("comma", [False, True])
@given(texts=st.lists(st.sampled_from(VALUES) | st.text("0123456789.,-+eE \t", max_size=12), min_size=1, max_size=20))
@settings(max_examples=150, deadline=None)
def test_values_look_the_same_to_the_loop_and_the_plain_way(texts: list[str], comma: bool) -> None:
    ready = text_columns._classify(*text_buffers(pa.array(["1"])), comma, text_columns._WORDS)
    assert ready.tolist() == [text_columns.INT]
    plain = [text_columns._look(text, comma) for text in texts]
    assert classify(pa.array(texts), comma=comma).tolist() == plain, texts


WRITTEN = datetime(2024, 2, 29, 9, 5, 7, 123456, tzinfo=UTC)


def written(form: str) -> str:
    """Write a time in one of the formats."""
    text = form.replace("%_", " ").replace("%Z", " +0000").replace("%s", str(int(WRITTEN.timestamp() * 1000)))
    return WRITTEN.strftime(text)


@pytest.mark.parametrize("form", [form for form in FORMATS if form != RFC_3339])
def test_a_format_reads_what_is_written_in_it(form: str) -> None:
    texts = [written(form), f" {written(form)} ", written(form) + "x", written(form)[:-2] + "~", "", "24"]
    plain = few_times(texts, form, now_us=NOW_US)
    program = time_formats._program(form)
    buffers = text_buffers(pa.array(texts))
    looped = time_formats._read_all(*buffers, program, NOW_US + time_formats.DAY_US)
    assert plain.tolist() == looped.tolist()
    found = datetime.fromtimestamp(int(plain[0]) / 1e6, UTC)
    assert (found.year, found.month, found.day) == (2024, 2, 29)
    if time_formats.has_time_of_day(form):
        assert (found.hour, found.minute) == (9, 5)
    assert plain[0] == plain[1]
    assert plain[2] == NO_TIME
    assert plain[4] == plain[5] == NO_TIME


@given(st.sampled_from([form for form in FORMATS if form != RFC_3339]), st.data())
@settings(max_examples=300, deadline=None)
def test_changed_times_are_read_alike_by_the_loop_and_the_plain_way(form: str, data: st.DataObject) -> None:
    text = written(form)
    at = data.draw(st.integers(0, len(text)))
    text = (
        text[:at]
        + data.draw(st.text("0123456789:. +-ZTAPMapm,/", max_size=3))
        + text[at + data.draw(st.integers(0, 2)) :]
    )
    buffers = text_buffers(pa.array([text]))
    looped = time_formats._read_all(*buffers, time_formats._program(form), NOW_US + time_formats.DAY_US)
    assert few_times([text], form, now_us=NOW_US).tolist() == looped.tolist(), (form, text)


def test_a_time_without_a_year_is_never_more_than_a_day_ahead() -> None:
    day = 86_400_000_000
    for days in range(-400, 2):
        moment = datetime.fromtimestamp((NOW_US + days * day) / 1e6, UTC)
        text = f"{moment:%b %d %H:%M:%S}"
        found = int(times_in(pa.array([text]), "%b %d %H:%M:%S", now_us=NOW_US)[0])
        assert NOW_US + day - 367 * day <= found <= NOW_US + day
        assert f"{datetime.fromtimestamp(found / 1e6, UTC):%b %d %H:%M:%S}" == text
        assert days <= -364 or found == NOW_US + days * day


def test_the_whole_sample_decides_between_day_and_month() -> None:
    days = [f"{day:02d}/03/2026" for day in range(1, 32)]
    assert choose_format(pa.array(days), NOW_US) == "%d/%m/%Y"
    assert choose_format(pa.array([f"03/{day:02d}/2026" for day in range(1, 32)]), NOW_US) == "%m/%d/%Y"
    with pytest.raises(ValueError, match="say which with time_format="):
        choose_format(pa.array(days[:12]), NOW_US)
    same = [f"{day:02d}/{day:02d}/2026" for day in range(1, 12)]
    assert choose_format(pa.array(same), NOW_US) in ("%d/%m/%Y", "%m/%d/%Y")
    assert choose_format(pa.array(["never", "no"]), NOW_US) is None
    assert np.isin(NO_TIME, times_in(pa.array([None, "x"], pa.string()), "%d/%m/%Y", now_us=NOW_US))
