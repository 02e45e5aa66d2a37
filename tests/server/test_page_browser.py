"""Look at the page with a real browser: every view opened, typed into and clicked; rows that are hostile stay text."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal, TypeAlias
from urllib.parse import urlencode

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Request, expect

import tidelake
from tests.support.browsers import browser as opened_browser
from tests.support.looked_at import START, make_lake
from tests.support.serving import Served, serving
from tidelake.server.access import create_token

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")  # of the driver's own pipes, when it ends

Scheme: TypeAlias = Literal["light", "dark"]

WITHIN_MS = 20_000  # machines that are busy with other tests take their time


@pytest.fixture(scope="module")
def lake_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("looked") / "lake"
    make_lake(place)
    return place


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with opened_browser() as one:
        yield one


@pytest.fixture(scope="module")
def tokens(lake_folder: Path) -> dict[str, str]:
    """Return a token for everything, and one that reads one namespace."""
    with tidelake.connect(lake_folder, upkeep=False) as lake:
        return {
            "all": create_token(lake.store, "keeper", roles=["admin"])[0],
            "some": create_token(lake.store, "visitor", roles=["read"], namespaces=["shop"])[0],
        }


@pytest.fixture(scope="module")
def served(lake_folder: Path, browser: Browser, tokens: dict[str, str]) -> Iterator[Served]:
    with serving(lake_folder) as server:
        yield server


def sign_in(context: BrowserContext, token: str) -> None:
    """Have every tab begin as one that has signed in."""
    context.add_init_script(f"sessionStorage.setItem('tidelake.token', {json.dumps(token)})")


@pytest.fixture(scope="module")
def context(browser: Browser, served: Served, tokens: dict[str, str]) -> Iterator[BrowserContext]:
    one = browser.new_context(viewport={"width": 1280, "height": 800}, locale="en-US", base_url=served.url)
    one.set_default_timeout(WITHIN_MS)
    sign_in(one, tokens["all"])
    expect.set_options(timeout=WITHIN_MS)
    yield one
    one.close()


@pytest.fixture
def page(context: BrowserContext, served: Served) -> Iterator[Page]:
    """Yield a tab; nothing in it may go wrong, and no request may leave the server."""
    tab = context.new_page()
    wrong: list[str] = []

    def on_request(request: Request) -> None:
        if not request.url.startswith((served.url, "blob:", "data:")):
            wrong.append(request.url)

    tab.on("request", on_request)
    tab.on("pageerror", lambda error: wrong.append(str(error)))
    tab.on("console", lambda told: wrong.append(told.text) if "Content Security" in told.text else None)
    yield tab
    assert tab.evaluate("window.ran") is None
    tab.close()
    assert wrong == []


def asked(page: Page, text: str, **more: str) -> None:
    """Open the view of a question, and wait for its answer."""
    page.goto("/#/ask?" + urlencode({"q": text, **more}))
    expect(page.locator(".told .facts")).to_contain_text("row")


def take_keys(page: Page) -> None:
    """Wait until a list of completions takes keys: one that has just come leaves them to what was typed before."""
    options = page.locator(".cm-tooltip-autocomplete li")
    expect(options.nth(1)).to_be_visible()
    while options.first.get_attribute("aria-selected") == "true":
        page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowUp")
    expect(options.first).to_have_attribute("aria-selected", "true")


def cells(page: Page, column: int) -> list[str]:
    return page.locator(f".tr [aria-colindex='{column}']").all_text_contents()


def test_a_question_is_typed_run_and_shown(page: Page) -> None:
    page.goto("/")
    page.get_by_role("button", name="obs.logs").first.click()
    expect(page.locator(".facts")).to_contain_text("1,000 rows")
    editor = page.locator(".cm-content")
    editor.click()
    page.keyboard.press("Control+A")
    page.keyboard.insert_text("obs.logs\n| where level == 'ERROR'\n| order by ts asc")
    page.keyboard.press("Control+Enter")
    expect(page.locator(".facts")).to_contain_text("100 rows")
    assert "q=obs.logs" in page.url
    assert cells(page, 2)[:3] == ["ERROR"] * 3
    expect(page.locator(".hits .plot canvas")).to_be_visible()
    page.go_back()
    expect(page.locator(".facts")).to_contain_text("1,000 rows")


def test_completion_comes_from_the_server_while_typing(page: Page) -> None:
    page.goto("/")
    page.locator(".cm-content").click()
    page.keyboard.type("obs.logs | where serv")
    option = page.locator(".cm-tooltip-autocomplete li").first
    expect(option).to_contain_text("service")
    option.click()
    page.keyboard.type(" == ")
    page.keyboard.press("Control+Space")
    expect(page.locator(".cm-tooltip-autocomplete li").first).to_contain_text("payments")
    take_keys(page)
    page.keyboard.press("Enter")
    expect(page.locator(".cm-content")).to_contain_text('service == "payments"')
    page.keyboard.press("Control+Enter")
    expect(page.locator(".facts")).to_contain_text("100 rows")


def test_a_mistake_is_shown_at_its_place(page: Page) -> None:
    page.goto("/#/ask?" + urlencode({"q": "obs.logs\n| where levl == 1"}))
    expect(page.get_by_role("alert")).to_contain_text("did you mean 'level'")
    assert page.locator(".cm-mistake").text_content() == "levl"


@pytest.mark.parametrize(
    ("language", "text"),
    [("sql", "select level, count(*) n from obs.logs group by level order by n"), ("promql", "vector(5)")],
)
def test_other_languages_answer_too(page: Page, language: str, text: str) -> None:
    asked(page, text, l=language, tab="rows")
    assert len(cells(page, 1)) >= 2


def test_a_row_is_opened_and_its_values_narrow_the_question(page: Page) -> None:
    asked(page, "obs.logs\n| order by ts asc")
    page.locator("#cell-2-3").click()
    panel = page.locator(".row-panel")
    expect(panel).to_contain_text("request 2 served")
    expect(panel.locator(".tree").first).to_contain_text("status")
    assert "row=2" in page.url
    panel.get_by_role("button", name="only service s2").click()
    expect(page.locator(".facts")).to_contain_text("1,166 rows")
    page.locator("#cell-0-3").click()
    page.get_by_role("button", name="not attributes.http.status 200").click()
    expect(page.get_by_role("heading", name="No rows")).to_be_visible()
    assert '| where service == "s2"' in page.locator(".cm-content").inner_text().replace("\xa0", " ")
    page.go_back()
    page.locator("#cell-0-3").click()
    page.get_by_role("link", name="± 10 s").click()
    expect(page.locator(".facts")).to_contain_text("13 rows")


def test_a_trace_is_a_waterfall_with_the_lines_beside_it(page: Page) -> None:
    page.goto("/#/trace/t200?table=obs.logs")
    spans = page.locator(".waterfall [role=row]")
    expect(spans).to_have_count(4 + 10)
    assert [spans.nth(n).get_attribute("aria-level") for n in range(4)] == ["1", "2", "3", "1"]
    spans.nth(2).get_by_role("gridcell").first.click()
    expect(spans.nth(2)).to_contain_text("duration_nano")


def test_a_chart_is_drawn_zoomed_and_hatched_where_nothing_is_held(page: Page) -> None:
    text = "obs.metrics\n| where host == 'pay-2'\n| summarize avg(memory) by bin(ts, 1m)\n| render timechart"
    asked(page, text)
    plot = page.locator(".drawn .plot")
    expect(plot).to_have_attribute("aria-label", re.compile("1 window not held"))
    expect(page.locator(".legend")).to_contain_text("not held")
    both = text.replace("| where host == 'pay-2'\n", "")
    asked(page, both)
    expect(plot).to_have_attribute("aria-label", re.compile("1 window held in part"))
    expect(page.locator(".legend")).to_contain_text("without pay-2")
    box = plot.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 300, box["y"] + 100)
    page.mouse.down()
    page.mouse.move(box["x"] + 500, box["y"] + 120, steps=4)
    page.mouse.up()
    page.wait_for_url(re.compile("from=2026-03-14T09"))
    for kind in ("area", "column", "bar", "scatter", "pie", "card"):
        page.get_by_role("radio", name=kind, exact=True).click()
        expect(page.locator(".drawn figure, .drawn .cards").first).to_be_visible()


@pytest.mark.parametrize(
    ("language", "where"),
    [
        ("kql", "| where host in ('pay-2', 'pay-9') and memory > 0"),
        ("kql", "| where host endswith '-2'"),
        ("kql", "| where not(host == 'pay-1')"),
        ("sql", "where host like '%-2' or host = 'nobody'"),
    ],
)
def test_gaps_are_those_of_the_entities_that_a_question_may_be_about(page: Page, language: str, where: str) -> None:
    text = {
        "kql": f"obs.metrics\n{where}\n| summarize avg(memory) by bin(ts, 1m)",
        "sql": f"select ts, avg(memory) memory from obs.metrics {where} group by ts order by ts",
    }[language]
    asked(page, text, l=language, tab="chart")
    expect(page.locator(".drawn .plot")).to_have_attribute("aria-label", re.compile("1 window not held$"))
    asked(page, text.replace("-2", "-1").replace("== 'pay-1'", "== 'pay-2'"), l=language, tab="chart")
    expect(page.locator(".drawn .plot")).to_have_attribute("aria-label", re.compile("windows$"))


def test_looks_in_sql_have_their_hits_above_them(page: Page) -> None:
    where = "l.level = 'ERROR' and message <> 'limit; order by'"
    text = f"select message, ts from obs.logs l -- from here\nwhere {where} order by ts limit 5;"
    asked(page, text, l="sql")
    expect(page.locator(".facts")).to_contain_text("5 rows")
    plot = page.locator(".hits .plot")
    expect(plot).to_have_attribute("aria-label", "hits over time, windows of 1m: 1 series, 4 windows")
    page.get_by_role("button", name="Hide hits").click()
    expect(plot).to_have_count(0)
    for other in ("select max(ts) m from obs.logs", "select distinct level from obs.logs", "select 1 x"):
        asked(page, other, l="sql")
        expect(page.get_by_role("button", name="Hide hits")).to_have_count(0)


def test_a_time_is_picked_on_what_the_table_holds(page: Page) -> None:
    asked(page, "obs.logs")
    page.locator("button.time").click()
    strip = page.locator(".held svg")
    box = strip.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.75, box["y"] + 20, steps=3)
    page.mouse.up()
    expect(page.locator(".facts")).to_contain_text(re.compile(r"8\d\d|9\d\d"))
    page.locator("button.time").click()
    page.get_by_role("button", name="last 5 minutes").click()
    expect(page.get_by_role("heading", name="No rows")).to_be_visible()
    page.get_by_role("button", name="Look at all that is held").click()
    expect(page.locator(".facts")).to_contain_text("3,600 rows")


def test_what_was_read_is_a_funnel(page: Page) -> None:
    asked(page, "obs.logs | where message has 'nothing'", tab="plan")
    expect(page.locator(".funnel li").first).to_contain_text("snapshot")
    expect(page.locator(".funnel h3")).to_contain_text("reads 0.0 % of the bytes")


def test_tables_show_fields_history_extents_and_coverage(page: Page) -> None:
    page.goto("/#/tables")
    page.get_by_role("link", name="obs.metrics").click()
    expect(page.locator(".list")).to_contain_text("pay-1, pay-2")
    page.get_by_role("tab", name="Coverage").click()
    expect(page.locator(".table-view")).to_contain_text("1 gap")
    expect(page.locator(".heat canvas")).to_have_attribute("aria-label", "missing somewhere: pay-2")
    page.get_by_role("link", name="look around it").click()
    expect(page.locator(".legend")).to_contain_text("not held")
    page.goto("/#/table/obs.logs/extents")
    expect(page.locator(".lanes rect")).to_have_count(1)
    page.get_by_role("tab", name="History").click()
    page.get_by_role("row", name="1 2").get_by_role("link", name="look at it").last.click()
    expect(page.get_by_role("heading", name="No rows")).to_be_visible()
    page.get_by_role("button", name="as of snapshot 1").click()
    expect(page.locator(".facts")).to_contain_text("1,000 rows")


def test_drift_is_a_time_line_of_what_came_and_what_grew(page: Page) -> None:
    page.goto("/#/table/obs.drifted/drift")
    lanes = page.locator(".drift [role=listitem]")
    expect(lanes).to_have_count(2)
    assert [each.all_text_contents() for each in (lanes.nth(0).locator("a"), lanes.nth(1).locator("a"))] == [
        ["int", "long", "real"], ["string"],
    ]  # fmt: skip
    expect(page.locator(".list")).to_contain_text("long → real")
    lanes.nth(0).locator("a").nth(1).click()
    expect(page.get_by_role("button", name=re.compile("as of snapshot"))).to_be_visible()
    expect(page.locator(".facts")).to_contain_text("2 rows")
    page.goto("/#/table/obs.logs/drift")
    expect(page.get_by_role("heading", name="No drift")).to_be_visible()


def test_rows_are_watched_paused_and_none_is_lost(page: Page, served: Served, tokens: dict[str, str]) -> None:
    def send(*numbers: int) -> None:
        lines = [json.dumps({"ts": START.isoformat(), "level": "LIVE", "message": f"live {n}"}) for n in numbers]
        with served.client(tokens["all"]) as client:
            assert client.post("/v1/ingest/obs.logs", content="\n".join(lines)).status_code == 200

    page.goto("/#/tail?" + urlencode({"table": "obs.logs", "where": "level == 'LIVE'"}))
    expect(page.locator(".lamp")).to_have_text("listening")
    page.get_by_role("button", name="Pause").click()  # before there was a row
    send(1, 2)
    page.get_by_role("button", name="Resume").click()
    expect(page.locator(".told .facts")).to_contain_text("2 rows")
    page.keyboard.press(" ")
    expect(page.locator(".lamp")).to_have_text("paused")
    send(3)
    page.get_by_role("button", name="Resume").click()
    expect(page.locator(".told .facts")).to_contain_text("3 rows")
    assert sorted(cells(page, 4)) == ["live 1", "live 2", "live 3"]


def test_health_lists_tables_and_stops_a_question(page: Page, context: BrowserContext) -> None:
    other = context.new_page()
    endless = "select count(*) from range(3000000) a, range(3000000) b where a.id * b.id = 7"
    other.goto("/#/ask?" + urlencode({"q": endless, "l": "sql"}))
    page.goto("/#/health")
    expect(page.locator(".list").last).to_contain_text("obs.logs")
    page.get_by_role("button", name="Stop").click()
    expect(other.locator(".failure")).to_be_visible()
    other.close()


def test_a_dashboard_is_made_and_asks_again_only_after_a_commit(
    page: Page, served: Served, tokens: dict[str, str]
) -> None:
    page.goto("/#/boards")
    page.get_by_role("button", name="New dashboard").click()
    page.get_by_role("textbox", name="name").fill("The shop")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Add panel").first.click()
    dialog = page.get_by_role("dialog", name="panel")
    dialog.get_by_label("title").fill("errors <b>")
    dialog.locator(".cm-content").click()
    page.keyboard.insert_text("obs.otel_spans | summarize n = count() by service_name")
    dialog.get_by_label("shown as").select_option("card")
    dialog.get_by_role("button", name="Done").click()
    page.get_by_role("button", name="Save").click()
    # Not until "Edit" shows: while it is being saved, panels have a button of that name, too.
    expect(page.get_by_role("button", name="Save")).to_be_hidden()
    page.reload()
    card = page.locator(".panel .card b")
    expect(card).to_have_text("4")
    expect(page.locator(".panel header")).to_contain_text("errors <b>")
    asks: list[str] = []
    page.on("request", lambda request: asks.append(request.url) if request.url.endswith("/v1/query") else None)
    with page.expect_response("**/v1/tables"):
        pass
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert asks == []
    line = json.dumps({"time": START.isoformat(), "trace_id": "t9", "span_id": "e", "service_name": "payments"})
    with served.client(tokens["all"]) as client:
        assert client.post("/v1/ingest/obs.otel_spans", content=line).status_code == 200
    expect(card).to_have_text("5")
    assert len(asks) == 1


def test_panels_are_hatched_where_nothing_is_held(page: Page, served: Served, tokens: dict[str, str]) -> None:
    text = "obs.metrics | where host == 'pay-2' | summarize avg(memory) by bin(ts, 1m)"
    body = {"body": {"panels": [{"title": "memory", "text": text, "kind": "timechart"}]}, "revision": 0}
    with served.client(tokens["all"]) as client:
        assert client.put("/v1/documents/dashboard/held", json=body).status_code == 200
    page.goto("/#/board/held")
    expect(page.locator(".panel .plot")).to_have_attribute("aria-label", re.compile("1 window not held"))


def test_a_question_is_saved_with_its_parameters(page: Page) -> None:
    asked(page, "obs.logs | where level == $level | take 7", **{"p.level": "ERROR"})
    expect(page.locator(".facts")).to_contain_text("7 rows")
    page.get_by_role("button", name="Save").click()
    page.get_by_role("textbox", name="name").fill("By level")
    page.keyboard.press("Enter")
    page.locator(".side").get_by_role("link", name="By level").click()
    expect(page.locator(".parameters input")).to_have_value("ERROR")


VIEWS = {  # and a text that is there when all of it is
    "ask?q=obs.hostile&row=0": "<script>window.ran",
    "ask?q=obs.hostile&row=1": "<img src=x onerror",
    "ask?q=obs.hostile&row=2": "⟨U+202E⟩ fed",
    "ask?q=obs.hostile&row=3": "… all 977 KiB",
    "ask?q=obs.hostile&row=5": "Row 6",
    "ask?q=obs.hostile+|+summarize+n+%3D+count()+by+message+|+render+barchart": "<script>window.ran",
    "ask?q=obs.hostile+|+summarize+n+%3D+count()+by+level+|+render+piechart": "<script>window.ran",
    "ask?q=obs.hostile+|+summarize+n+%3D+count()+by+ts,+level+|+render+timechart": "<script>window.ran",
    "ask?q=obs.hostile&tab=plan": "of the bytes",
    "table/obs.hostile": "<script>window.ran",
    "table/obs.wide": "1,501 more fields",
    "trace/%3Cb%3E?table=obs.hostile": "5 lines",
    "ask?q=%3Cscript%3Ewindow.ran%3D1%3C/script%3E": "Not understood",
    "board/%3Cimg%20src%3Dx%3E": "no such document",
    "%3Cscript%3E": "There is no such view",
}


def test_hostile_rows_are_text_in_every_view(page: Page) -> None:
    for where, seen in VIEWS.items():
        page.goto(f"/#/{where}")
        expect(page.locator("main")).to_contain_text(seen)
        assert page.locator("main script, main img").count() == 0, where
        assert page.evaluate("window.ran") is None, where
        assert "\u202e" not in page.locator("main").inner_text(), where


def test_who_signs_in_sees_what_the_token_reaches(browser: Browser, served: Served, tokens: dict[str, str]) -> None:
    one = browser.new_context(locale="en-US", base_url=served.url)
    tab = one.new_page()
    tab.goto("/#/tables")
    field = tab.get_by_label("Token")
    field.fill("tl_0123456789ab_" + "x" * 43)
    tab.keyboard.press("Enter")
    expect(tab.get_by_role("alert")).to_contain_text("not known")
    field.fill(tokens["some"])
    tab.keyboard.press("Enter")
    expect(tab.locator(".who")).to_have_text("visitor")
    expect(tab.locator(".list")).to_contain_text("shop.orders")
    assert "obs." not in tab.locator("main").inner_text()
    assert tokens["some"] not in tab.url
    assert one.cookies() == []
    assert tab.evaluate("JSON.stringify(localStorage)").count("tl_") == 0
    tab.goto("/#/ask?q=shop.orders")
    expect(tab.locator(".facts")).to_contain_text("1 row")
    assert tab.get_by_role("button", name="Save").count() == 0
    tab.get_by_role("button", name="Sign out").click()
    expect(tab.get_by_label("Token")).to_be_visible()
    one.close()


def test_a_browser_that_names_no_true_language_is_served_too(page: Page) -> None:
    page.add_init_script("Object.defineProperty(Navigator.prototype, 'language', { get: () => 'en-US@posix' })")
    asked(page, "obs.metrics | summarize avg(memory) by bin(ts, 5m) | render timechart")
    expect(page.locator(".drawn .plot canvas")).to_be_visible()


def test_wide_rows_and_long_values_cost_what_is_seen(page: Page) -> None:
    asked(page, "obs.wide")
    assert page.locator(".td").count() < 60
    asked(page, "obs.hostile | where strlen(message) > 1000", row="0")
    assert max(map(len, cells(page, 2))) < 500
    page.get_by_role("button", name=re.compile("all 977 KiB")).first.click()
    expect(page.locator(".row-panel")).to_contain_text("x" * 5000)


def test_a_million_rows_are_held_sorted_and_scrolled(page: Page) -> None:
    asked(page, "range n from 1 to 1000000 step 1")
    page.locator(".grid").focus()
    page.keyboard.press("End")
    expect(page.locator(".td.active")).to_have_text("1,000,000")
    assert page.locator(".tr").count() < 60
    page.keyboard.press("Home")
    expect(page.locator(".td.active")).to_have_text("1")
    page.keyboard.press("s")
    page.keyboard.press("s")
    expect(page.get_by_role("columnheader", name="n")).to_have_attribute("aria-sort", "descending")
    expect(page.locator("#cell-0-0")).to_have_text("1,000,000")


def test_values_and_rows_are_copied(page: Page, context: BrowserContext) -> None:
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    asked(page, "obs.logs\n| where level == 'INFO' | order by ts asc | project message, attributes")
    page.locator(".grid").focus()
    page.keyboard.press("c")
    expect(page.locator(".message")).to_have_text("copied")
    assert page.evaluate("navigator.clipboard.readText()") == "request 0 served"
    page.keyboard.press("Shift+C")
    expect(page.locator(".message")).to_have_count(2)
    row = json.loads(page.evaluate("navigator.clipboard.readText()"))
    assert row["attributes"]["http"] == {"status": 200}
    page.keyboard.press("Enter")
    page.get_by_role("button", name="copy attributes.deploy.version").click()
    expect(page.locator(".message")).to_have_count(3)
    assert page.evaluate("navigator.clipboard.readText()") == "2.4.0"


@pytest.mark.parametrize("form", ["CSV", "NDJSON", "Parquet", "Arrow"])
def test_an_answer_is_downloaded(page: Page, form: str) -> None:
    asked(page, "obs.logs | where level == 'ERROR' | project ts, message")
    page.get_by_text("Download").click()
    with page.expect_download() as told:
        page.get_by_role("menuitem", name=form).click()
    data = Path(told.value.path()).read_bytes()
    count: dict[str, Callable[[], int]] = {
        "CSV": lambda: len(data.splitlines()) - 1,
        "NDJSON": lambda: len(data.splitlines()),
        "Parquet": lambda: pq.read_table(pa.BufferReader(data)).num_rows,
        "Arrow": lambda: pa.ipc.open_stream(data).read_all().num_rows,
    }
    assert count[form]() == 100
    assert told.value.suggested_filename == f"answer.{form.lower()}"


def test_the_incident_is_found_by_keyboard_alone(page: Page) -> None:
    page.goto("/")
    expect(page.get_by_role("heading", name="Ask something")).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.type("obs.logs | where level == 'ERROR' | order by ts asc")
    page.keyboard.press("Control+Enter")
    expect(page.locator(".facts")).to_contain_text("100 rows")
    page.keyboard.press("Escape")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.locator(".row-panel")).to_contain_text("OutOfMemoryError in worker 2002")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("=")
    expect(page.locator(".cm-content")).to_contain_text('service == "payments"')
    page.keyboard.press("g")
    page.keyboard.press("t")
    expect(page.get_by_role("heading", name="Tables")).to_be_visible()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="keyboard shortcuts")).to_be_visible()


@pytest.mark.parametrize(("width", "scheme"), [(1280, "dark"), (400, "light"), (400, "dark")])
def test_it_is_readable_on_a_phone_and_in_the_dark(
    browser: Browser, served: Served, tokens: dict[str, str], width: int, scheme: Scheme
) -> None:
    one = browser.new_context(
        viewport={"width": width, "height": 800}, color_scheme=scheme, locale="en-US", base_url=served.url
    )
    sign_in(one, tokens["all"])
    tab = one.new_page()
    for where in ("ask?q=obs.logs", "tables", "health"):
        tab.goto(f"/#/{where}")
        expect(tab.locator("main")).to_contain_text("level" if "ask" in where else "obs.logs")
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
    ground, ink = tab.evaluate(
        "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]"
    )
    assert _light(ground) > _light(ink) if scheme == "light" else _light(ground) < _light(ink)
    one.close()


def _light(colour: str) -> float:
    return sum(map(float, re.findall(r"[\d.]+", colour)[:3]))


def test_everything_that_is_pressed_has_a_name(page: Page) -> None:
    views = {
        "ask?q=obs.logs&row=1": ".row-panel",
        "tail?table=obs.logs": ".lamp.listening",
        "tables": ".list",
        "table/obs.metrics/coverage": ".heat canvas",
        "table/obs.drifted/drift": ".drift",
        "health": ".list",
        "boards": ".headline",
    }
    for where, shown in views.items():
        page.goto(f"/#/{where}")
        expect(page.locator(shown).first).to_be_visible()
        nameless = page.evaluate(
            """() => [...document.querySelectorAll("button, a, input, select, [role=img], canvas")].filter((each) =>
                 each.offsetParent && !(each.ariaLabel || each.textContent.trim() || each.labels?.length || each.title
                 || each.closest("[role=img]"))).map((each) => each.outerHTML.slice(0, 120))"""
        )
        assert nameless == [], where
