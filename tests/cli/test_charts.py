"""Draw charts, and read them back as text."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

from tidelake.cli.charts import MAX_BARS, chart

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
    rows = [(f"s{n}", n) for n in range(MAX_BARS + 3)]
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


def test_bars_by_a_number_are_named_by_the_first_column() -> None:
    lines = chart("columnchart", ["hour", "n", "m"], [(0, 4, 1), (23, 2, 3)], width=40).plain.splitlines()
    assert [line.split() for line in lines if "█" not in line] == [["n"], ["m"]]
    assert [line.split()[::2] for line in lines if "█" in line] == [["0", "4"], ["23", "2"], ["0", "1"], ["23", "3"]]


def test_bars_tell_nulls_signs_shares_and_numbers_of_any_size() -> None:
    rows = [("none", None), ("less", -5.0), ("most", 12345.678), ("huge", 2e300), ("odd", float("nan"))]
    lines = chart("barchart", ["s", "n"], rows, width=50).plain.splitlines()[1:]
    assert [line.split()[-1] for line in lines] == ["–", "-5", "12345.678", "2e+300", "nan"]
    assert all(len(line) <= 50 for line in lines)
    exact = [("a", 9_007_199_254_740_993), ("b", Decimal("1234567.890")), ("c", 0.1), ("d", 1234567.0)]
    lines = chart("barchart", ["s", "n"], exact, width=50).plain.splitlines()[1:]
    assert [line.split()[-1] for line in lines] == ["9,007,199,254,740,993", "1234567.890", "0.1", "1,234,567"]
    shares = chart("piechart", ["s", "n"], [("a", 1), ("b", Decimal(3))], width=50).plain.splitlines()[1:]
    assert [line.split()[2:] for line in shares] == [["1", "(25.0%)"], ["3", "(75.0%)"]]


def test_time_chart_reaches_below_zero_and_draws_one_point_as_one() -> None:
    rows = [(NOON + timedelta(minutes=n), value) for n, value in enumerate((-50, 0, 50, None))]
    lines = chart("timechart", ["ts", "n"], rows, width=60).plain.splitlines()
    assert (lines[1].split()[0], lines[8].split()[0]) == ("50", "-50")
    assert [line.count("█") for line in lines[1:9]] == [12, 12, 12, 12, 24, 24, 24, 24]
    one = chart("timechart", ["ts", "n"], [(NOON, 7)], width=60).plain.splitlines()
    assert (one[1].count("█"), one[-1].split()) == (12, ["2026-03-14", "12:00:00"])
    huge = chart("timechart", ["ts", "n"], [(NOON, 1.7e308), (NOON + timedelta(1), -1.7e308)], width=60).plain
    assert "1.7e+308" in huge


def test_what_cannot_be_drawn_is_said() -> None:
    for rows in ([], [("a", "b")], [("a", None)]):
        assert chart("barchart", ["s", "t"], rows).plain.startswith("nothing to draw")
    assert chart("timechart", ["ts", "n"], [(NOON, float("nan"))]).plain.startswith("nothing to draw")
