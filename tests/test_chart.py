"""Draw charts, and read them back as text."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from tidelake.chart import MOST_BARS, chart

NOON = datetime(2026, 3, 14, 12, tzinfo=UTC)


def test_bars_are_as_long_as_their_values() -> None:
    drawn = chart("barchart", ["service", "errors"], [("auth", 40), ("web", 20), ("mail", 0)], width=60).plain
    lines = drawn.splitlines()
    assert lines[0] == "errors"
    bars = [line.count("█") for line in lines[1:]]
    assert bars[0] == 2 * bars[1] > 0 == bars[2]
    assert [line.split()[0] for line in lines[1:]] == ["auth", "web", "mail"]
    assert all(len(line) <= 60 for line in lines)


def test_more_bars_than_anybody_reads_are_counted() -> None:
    rows = [(f"s{n}", n) for n in range(MOST_BARS + 3)]
    assert chart("columnchart", ["s", "n"], rows).plain.splitlines()[-1] == "… and 3 more"


def test_time_chart_shows_the_spike_where_it_is() -> None:
    rows = [(NOON + timedelta(minutes=n), 100 if n == 30 else 1) for n in range(60)]
    lines = chart("timechart", ["ts", "errors"], rows, width=80).plain.splitlines()
    assert lines[0] == "errors"
    top = lines[1]
    assert top.split()[0] == "100"
    spike = top.index("█")
    assert abs(spike - len(lines[1].rstrip())) <= 1
    assert 35 <= spike <= 50
    assert lines[-1].split() == ["2026-03-14", "12:00:00", "2026-03-14", "12:59:00"]


def test_time_chart_draws_a_series_for_each_name() -> None:
    rows = [(NOON + timedelta(minutes=n), name, n) for n in range(10) for name in ("auth", "web")]
    drawn = chart("timechart", ["ts", "service", "n"], rows, width=60).plain
    assert [line for line in drawn.splitlines() if line in ("auth", "web")] == ["auth", "web"]


def test_what_cannot_be_drawn_is_said() -> None:
    for rows in ([], [("a", "b")], [("a", None)]):
        assert chart("barchart", ["s", "t"], rows).plain.startswith("nothing to draw")
    assert chart("timechart", ["ts", "n"], [(NOON, float("nan"))]).plain.startswith("nothing to draw")
