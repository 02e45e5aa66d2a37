"""Draw answers, plans and coverage for notebooks: true to the values, hatched where nothing is held, always escaped."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from xml.etree import ElementTree

import pytest

import tidelake

START = datetime(2026, 3, 14, 9, tzinfo=UTC)
EVIL = "<script>alert(1)</script>\u202e\"'&"
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tidelake.Lake]:
    with tidelake.connect(tmp_path_factory.mktemp("drawn") / "lake", upkeep=False) as opened:
        columns = {"ts": "timestamp", "host": "string", "memory": "real"}
        table = opened.create_table("m.memory", columns, time="ts", bucket="1m", entity=["host"], coverage="track")
        table.append(
            [
                {"ts": START + timedelta(minutes=n), "host": host, "memory": float("nan") if n == 3 else 50.0 + n}
                for n in range(60)
                for host in ("a", EVIL)
                if host == "a" or not 20 <= n < 30
            ]
        )
        yield opened


def parsed(html: str) -> ElementTree.Element:
    """Return the one SVG of some HTML, which must be well formed and have no element that runs."""
    text = html[html.index("<svg") : html.index("</svg>") + 6]
    root = ElementTree.fromstring(text)
    assert {each.tag for each in root.iter()} <= {
        SVG + name
        for name in ("svg", "defs", "pattern", "line", "rect", "polyline", "polygon", "circle", "text", "title")
    }
    assert "<script" not in html
    assert "\u202e" not in text
    return root


def hatched(root: ElementTree.Element) -> list[str]:
    titles = [each.findtext(f"{SVG}title") for each in root.iter(f"{SVG}rect") if each.get("fill") == "url(#gap)"]
    return [title for title in titles if title]


def test_a_line_stops_where_nothing_is_held(lake: tidelake.Lake) -> None:
    whole = "m.memory | where host startswith '<' | summarize m = avg(memory) by bin(ts, 1m) | order by ts asc"
    assert hatched(parsed(lake.kql(whole).plot().svg)) == ["not held"]
    assert hatched(parsed(lake.kql(whole.replace("startswith", "!startswith")).plot().svg)) == []
    one = lake.kql(f"m.memory | where host == {EVIL!r} | summarize m = avg(memory) by bin(ts, 1m) | render timechart")
    root = parsed(one.plot().svg)
    assert hatched(root) == ["not held"]
    assert len(list(root.iter(f"{SVG}polyline"))) >= 2
    both = parsed(lake.sql("select ts, host, memory from m.memory").plot()._repr_html_())
    assert [title.startswith("held in part: without") for title in hatched(both)] == [True]
    plain = parsed(lake.kql("m.memory | where host == 'a' | summarize m = avg(memory) by bin(ts, 1m)").plot().svg)
    assert hatched(plain) == []


@pytest.mark.parametrize(
    ("kind", "mark"),
    [("areachart", "polygon"), ("columnchart", "rect"), ("scatterchart", "circle"), ("timechart", "polyline")],
)
def test_kinds_have_their_marks(lake: tidelake.Lake, kind: str, mark: str) -> None:
    root = parsed(lake.sql("select ts, memory from m.memory where host = 'a'").plot(kind).svg)
    assert len(list(root.iter(SVG + mark))) >= 1


def test_bars_and_shares_tell_names_and_numbers(lake: tidelake.Lake, tmp_path: Path) -> None:
    result = lake.sql("select host, count(*) n from m.memory group by host order by n")
    told = [each.text for each in parsed(result.plot().svg).iter(f"{SVG}text")]
    assert told[1::2] == ["50", "60"]
    shares = [each.text for each in parsed(result.plot("piechart").svg).iter(f"{SVG}text")]
    assert shares[1] == "50 · 45.5%"
    result.plot().save(tmp_path / "bars.svg")
    parsed((tmp_path / "bars.svg").read_text())


@pytest.mark.parametrize(
    ("text", "kind"), [("select host from m.memory", None), ("select 1 a where false", None), ("select 1 a", "cake")]
)
def test_what_cannot_be_drawn_is_said(lake: tidelake.Lake, text: str, kind: str | None) -> None:
    with pytest.raises(tidelake.InvalidInputError):
        lake.sql(text).plot(kind)


def test_plans_and_coverage_are_drawn_without_a_server(lake: tidelake.Lake) -> None:
    table = lake.table("m.memory")
    funnel = parsed(table.plan(where="host == 'a'")._repr_html_())
    assert next(each.text for each in funnel.iter(f"{SVG}text")) == "snapshot"
    held = table.coverage.report()._repr_html_()
    assert len([each for each in parsed(held).iter(f"{SVG}rect") if each.get("fill") == "#c0362c"]) >= 1
    assert "<script" not in lake._repr_html_() + table._repr_html_()
    assert "110" in table._repr_html_()
