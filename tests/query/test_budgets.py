"""Let queries want too much, and measure from outside their process that they do not get it."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

import tidelake
from tests.support.hostile_queries import QUERIES
from tests.support.measuring import Measured, Running
from tidelake import Lake
from tidelake.errors import QueryError, UnavailableError
from tidelake.query import budget
from tidelake.query.budget import Deadline
from tidelake.query.engines.spark import CLOSED, SETTINGS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MODULE = "tests.support.hostile_queries"
MEMORY = 512 << 20
SECONDS = 10
MOST_BYTES = int(1.2 * (1 << 30))  # of a query that may have a gigabyte

# Quick ones of each kind; all of them are asked in the torture.
QUICK = ("long result", "wide result", "sequence", "text of texts", "kql range", "kql doubling", "deep query")


@pytest.fixture(scope="module")
def where(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return where a lake is that hostile queries are asked of."""
    place = tmp_path_factory.mktemp("budgets") / "lake"
    with tidelake.connect(place) as lake:
        logs = lake.create_table("obs.logs", {"ts": "timestamp", "message": "string", "n": "long"})
        logs.append([{"ts": 1_773_489_601 + i, "message": f"a{i} {'x' * 100}", "n": i} for i in range(3_000)])
        logs.flush()
    return place


class Sessions:
    """Ask one query after the other of one Spark session, and start another where one does not work on."""

    def __init__(self, where: Path) -> None:
        self._arguments = (where, "spark", str(SECONDS), "1GB")
        self._running: Running | None = None

    def ask(self, name: str) -> Measured:
        running = self._running
        if running is None or not running.is_well:
            running = self._running = Running(MODULE, *self._arguments)
        found = running.ask(name, longest=300, patience=60)
        if found.gained_bytes > MOST_BYTES and running.asked > 1:  # perhaps of what was asked before
            self.end()
            return self.ask(name)
        return found

    def end(self) -> None:
        if self._running is not None:
            self._running.end()


@pytest.fixture(scope="module")
def sessions(where: Path) -> Iterator[Sessions]:
    """Yield what asks hostile queries of Spark."""
    held = Sessions(where)
    yield held
    held.end()


@pytest.mark.parametrize("name", QUICK)
def test_a_query_that_wants_too_much_ends_with_an_error_of_ours_or_an_answer(name: str, where: Path) -> None:
    with Running(MODULE, where, "local", "5", str(MEMORY)) as running:
        found = running.ask(name, longest=120, patience=120)
    assert "raw" not in found.ended, found
    assert found.works_on, found
    assert found.gained_bytes < 2 * MEMORY


@pytest.mark.torture
@pytest.mark.parametrize("name", sorted(QUERIES))
def test_budgets_hold_within_a_fifth(name: str, where: Path) -> None:
    with Running(MODULE, where, "local", str(SECONDS), "1GB") as running:
        holds_within_a_fifth(name, running.ask(name, longest=300, patience=60))


@pytest.mark.torture
@pytest.mark.parametrize("name", sorted(QUERIES))
def test_budgets_hold_within_a_fifth_on_spark(name: str, sessions: Sessions) -> None:
    holds_within_a_fifth(name, sessions.ask(name))


def holds_within_a_fifth(name: str, found: Measured) -> None:
    end = found.ended.get("kind") or found.ended.get("raw") or "answered"
    gained = found.gained_bytes >> 20
    print(f"| {name} | {end} | {found.seconds:.1f} | {gained} | {'yes' if found.works_on else 'no'} |")
    assert "raw" not in found.ended, found
    assert found.works_on, found
    assert found.seconds <= 1.2 * SECONDS, found
    assert found.gained_bytes <= MOST_BYTES, found


def test_a_result_that_is_too_large_to_collect_can_be_read_as_a_stream(world: Lake) -> None:
    result = world.sql("select id, id + 1 as next from range(2000000) r(id)", budget={"memory": "40MB"})
    with pytest.raises(UnavailableError, match="read it as a stream with to_reader") as found:
        result.to_arrow()
    assert found.value.kind == "result_budget"
    assert sum(batch.num_rows for batch in result.to_reader()) == 2_000_000


@pytest.mark.parametrize(
    ("memory", "words"), [("40MB", "larger than its budget"), ("40GB", "larger than the memory of Spark allows")]
)
def test_a_result_that_is_too_large_for_spark_is_refused_and_the_session_goes_on(
    memory: str, words: str, world: Lake, spark: SparkSession
) -> None:
    text = "select repeat('x', 10000) as x from range(100000)"
    with pytest.raises(UnavailableError, match=words) as found:
        world.sql(text, engine="spark", budget={"memory": memory}).to_arrow()
    assert found.value.kind == "result_budget"
    text = "select count(*) as n, max(length(repeat('x', 10000))) as m from range(100000)"
    assert world.sql(text, engine="spark").to_arrow().to_pylist() == [{"n": 100_000, "m": 10_000}]


def test_a_query_on_spark_changes_no_settings_that_another_thread_sees(world: Lake, spark: SparkSession) -> None:
    names = sorted(SETTINGS | CLOSED)
    before = [spark.conf.get(name, None) for name in names]
    done, seen = threading.Event(), set()

    def looks() -> None:
        while not done.is_set():
            seen.add(tuple(spark.conf.get(name, None) for name in names))

    looking = threading.Thread(target=looks)
    looking.start()
    try:
        for _ in range(3):
            found = world.sql("select cast('x' as int) as a, count(*) as n from obs.logs", engine="spark").to_arrow()
            assert found.to_pylist() == [{"a": None, "n": 96}]
    finally:
        done.set()
        looking.join()
    assert seen == {tuple(before)}


def test_a_task_that_is_late_hears_it_within_its_loops(world: Lake, spark: SparkSession) -> None:
    text = "select count(*) from range(100000) a, range(100000) b, range(100000) c"
    with pytest.raises(UnavailableError) as found:
        world.sql(text, engine="spark", budget={"seconds": 2}).to_arrow()
    assert found.value.kind == "time_budget"
    until = time.monotonic() + 60
    status = spark.sparkContext.statusTracker()
    while status.getActiveStageIds() and time.monotonic() < until:
        time.sleep(0.1)
    assert not status.getActiveStageIds()


@pytest.mark.parametrize(
    "text",
    [
        "select count(*) as n from range(300) a, range(300) b, range(300) c where a.id < b.id and b.id < c.id",
        "select count(*) as n from (select explode(sequence(1, 5)) as x from range(9)) join range(4) b on x = b.id",
        "select a.id, b.id as other from range(7) a left join range(9) b on a.id > b.id order by 1, 2",
        "select sum(x) as n from (select id, sum(id) over (order by id) as x from range(50))",
        "select count(*) as n from range(5) a left anti join range(3) b on a.id <= b.id",
    ],
)
def test_loops_that_hear_answer_as_before(text: str, world: Lake, spark: SparkSession) -> None:
    found = world.sql(text, engine="spark").to_arrow().to_pylist()
    assert found == [row.asDict() for row in spark.sql(text).collect()]
    assert found == world.sql(text).to_arrow().to_pylist()


def test_conditions_that_double_at_every_step_are_planned_on_spark(world: Lake, spark: SparkSession) -> None:
    text = "obs.logs | extend x = status" + " | extend x = x + x" * 24 + " | where x > 1 | count"
    assert world.kql(text, engine="spark").to_arrow().to_pylist() == [{"Count": 96}]


def test_a_query_as_a_frame_belongs_to_the_session_that_asked(world: Lake, spark: SparkSession) -> None:
    world.sql("select status, cast('x' as int) as a from obs.logs").spark().createOrReplaceTempView("asked")
    try:
        assert [tuple(row) for row in spark.sql("select count(*), count(a) from asked").collect()] == [(96, 0)]
    finally:
        spark.catalog.dropTempView("asked")


def test_planning_is_counted(world: Lake) -> None:
    text = "select status from obs.logs where status in (" + ", ".join(map(str, range(100_000))) + ")"
    with pytest.raises(UnavailableError, match="longer than its budget to plan") as found:
        world.sql(text, budget={"seconds": 0.1})
    assert found.value.kind == "time_budget"
    assert world.sql("select count(*) as n from obs.logs").to_arrow()["n"].to_pylist() == [96]  # nothing is broken


def test_writing_the_query_for_an_engine_is_counted(world: Lake) -> None:
    result = world.sql(
        "select status from obs.logs where " + " or ".join(f"status % {at} = 1" for at in range(2, 3000))
    )
    result._budget = replace(result._budget, seconds=0.02, spent=0.0)
    with pytest.raises(UnavailableError, match="longer than its budget to plan"):
        result.to_arrow()


def test_conditions_that_double_at_every_step_are_planned(world: Lake) -> None:
    steps = "".join(f" | extend x = iff(status > {at}, array_concat(x, x), x)" for at in range(8))
    text = f"obs.logs | extend x = dynamic([1]){steps} | where array_length(x) > 1 | count"
    assert world.kql(text).to_arrow().to_pylist() == [{"Count": 96}]


def test_a_small_condition_is_still_asked_of_the_scan_through_steps(world: Lake) -> None:
    plan = world.kql("obs.logs | extend x = ts | extend y = x | where y >= datetime(2026-01-04)").plans[0]
    assert plan.question.where is not None


@pytest.mark.parametrize(
    "text",
    [
        "select repeat('x', 1000000000)",
        "select repeat('x', 1000 * 1000 * 1000)",
        "select repeat(repeat(repeat('x', 1000), 1000), 1000)",
        "select lpad('x', 1000000000, 'y')",
        "select space(1000000000)",
        "select sequence(1, 1000000000)",
        "select sequence(1000000000, 1, -1)",
        "select array_repeat('x', 1000000000)",
        "select replace(repeat('x', 10000), 'x', repeat('y', 10000))",
    ],
)
def test_a_value_that_is_made_too_large_out_of_nothing_is_refused(text: str, world: Lake) -> None:
    with pytest.raises(QueryError) as found:
        world.sql(text)
    assert found.value.kind == "too_large"


BY_ROWS = {
    "repeated": ("sql", "select sum(length(repeat(message, status * 10000))) as n from obs.logs"),
    "repeated twice": ("sql", "select repeat(m, 10000) as n from (select repeat(message, 10000) as m from obs.logs)"),
    "padded": ("sql", "select sum(length(lpad(message, status * 100000))) as n from obs.logs"),
    "spaces": ("sql", "select sum(length(space(status * 100000))) as n from obs.logs"),
    "replaced": ("sql", "select replace(m, 'e', m) as n from (select repeat(message, 1000) as m from obs.logs)"),
    "sequence": ("sql", "select sum(size(sequence(1, status * 100000))) as n from obs.logs"),
    "array": ("sql", "select sum(size(array_repeat(message, status * 10000))) as n from obs.logs"),
    "doubled": (
        "sql",
        f"select max(length(m)) as n from {'(select m || m as m from ' * 22}(select message as m from obs.logs)"
        + ")" * 22,
    ),
    "doubled in KQL": (
        "kql",
        f"obs.logs | extend x = message {'| extend x = strcat(x, x) ' * 22}| summarize n = max(strlen(x))",
    ),
}


@pytest.mark.parametrize("name", BY_ROWS)
def test_a_value_that_rows_make_too_large_is_refused(name: str, world: Lake) -> None:
    language, text = BY_ROWS[name]
    with pytest.raises(QueryError) as found:
        (world.sql if language == "sql" else world.kql)(text).to_arrow()
    assert found.value.kind == "too_large"


@pytest.mark.parametrize("name", ["repeated", "sequence", "doubled in KQL"])
def test_a_value_that_rows_make_too_large_is_refused_on_spark(name: str, world: Lake, spark: SparkSession) -> None:
    language, text = BY_ROWS[name]
    with pytest.raises(QueryError) as found:
        (world.sql if language == "sql" else world.kql)(text, engine="spark").to_arrow()
    assert found.value.kind == "too_large"


def sized(world: Lake, engine: str) -> object:
    """Ask for values whose size rows tell, some of them null."""
    rows = "(select * from (values (2, 'ab'), (0, 'c'), (cast(null as int), 'd'), (3, cast(null as string))) t(n, m))"
    text = (
        "select repeat(m, n) a, lpad(m, n, 'y') b, space(n) c, replace(m, 'a', m) d, sequence(1, n) e,"
        f" array_repeat(m, n) f, {' || '.join(['m'] * 12)} g from {rows} order by n, m"
    )
    return world.sql(text, engine=engine).to_arrow().to_pylist()


def test_values_whose_size_rows_tell_are_made(world: Lake) -> None:
    assert sized(world, "local") == [
        {"a": None, "b": None, "c": None, "d": "d", "e": None, "f": None, "g": "d" * 12},
        {"a": "", "b": "", "c": "", "d": "c", "e": [1, 0], "f": [], "g": "c" * 12},
        {"a": "abab", "b": "ab", "c": "  ", "d": "abb", "e": [1, 2], "f": ["ab", "ab"], "g": "ab" * 12},
        {"a": None, "b": None, "c": "   ", "d": None, "e": [1, 2, 3], "f": [None] * 3, "g": None},
    ]


def test_values_whose_size_rows_tell_are_the_same_on_spark(world: Lake, spark: SparkSession) -> None:
    assert sized(world, "spark") == sized(world, "local")


def test_values_of_a_usual_size_are_made(world: Lake) -> None:
    text = "select length(repeat('ab', 1000)) as a, size(sequence(1, 1000)) as b, length(lpad('x', 100, 'y')) as c"
    assert world.sql(text).to_arrow().to_pylist() == [{"a": 2000, "b": 1000, "c": 100}]


@pytest.mark.parametrize(
    ("text", "count", "total"),
    [
        ("range x from 1 to 100000 step 1", 100_000, 5_000_050_000),
        ("range x from 0 to 8191 step 1", 8_192, 33_550_336),
        ("range x from 0 to 8192 step 1", 8_193, 33_558_528),
        ("range x from 10 to 1 step -3", 4, 22),
        ("range x from 5 to 1 step 1", 0, None),
    ],
)
def test_a_range_is_counted_block_by_block(text: str, count: int, total: int | None, world: Lake) -> None:
    found = world.kql(f"{text} | summarize n = count(), s = sum(x)").to_arrow().to_pylist()
    assert found[0]["n"] == count
    assert found[0]["s"] in (total, total or 0)


def test_a_range_of_a_billion_rows_is_cut_without_being_made(world: Lake) -> None:
    found = world.kql("range x from 1 to 1000000000 step 1 | take 3", budget={"memory": "300MB"}).to_arrow()
    assert found["x"].to_pylist() == [1, 2, 3]


def planning(body: Callable[[], object]) -> Callable[[], None]:
    """Return a function that passes for planning, calls another and then never ends."""
    room = {"__name__": "sqlglot.made", "body": body}
    exec("def work():\n    body()\n    while True:\n        pass\n", room)
    return cast("Callable[[], None]", room["work"])


def busy(seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        sum(range(1000))


def test_a_deadline_interrupts_planning_but_not_what_is_undisturbed() -> None:
    deadline, done = Deadline(0.1), []

    def reads() -> None:
        with deadline.undisturbed():
            busy(0.5)
            done.append("read")

    with pytest.raises(ValueError, match="late"):
        deadline.watched(planning(reads), ValueError("late"))
    assert done == ["read"]
    assert deadline.left < 0


def test_a_deadline_does_not_interrupt_what_only_happens_to_run_in_the_thread() -> None:
    """A finalizer of somebody else may run anywhere, and must not be broken off."""
    deadline, done = Deadline(0.1), []

    def finalizes() -> None:
        busy(0.5)
        done.append("finalized")

    with pytest.raises(ValueError, match="late"):
        deadline.watched(planning(finalizes), ValueError("late"))
    assert done == ["finalized"]
    assert gc.isenabled()
    busy(0.2)  # nothing is raised any more
    assert not any(thread.name == "tidelake-deadline" for thread in threading.enumerate())


def test_a_deadline_does_not_interrupt_a_finalizer_of_a_scan() -> None:
    done: list[str] = []
    room: dict[str, object] = {"__name__": "tidelake.scan.made", "done": done}
    exec("def close():\n    for _ in range(20_000_000):\n        pass\n    done.append('closed')\n", room)
    with pytest.raises(ValueError, match="late"):
        Deadline(0.1).watched(planning(cast("Callable[[], None]", room["close"])), ValueError("late"))
    assert done == ["closed"]


@pytest.mark.parametrize("times", [10, pytest.param(300, marks=pytest.mark.torture)])
def test_a_deadline_does_not_interrupt_what_the_collector_calls(times: int) -> None:
    """The collector may start at any allocation, also between looking at the stack and raising."""
    broken: list[object] = []
    limits, hook, interval = gc.get_threshold(), sys.unraisablehook, sys.getswitchinterval()

    def collects(phase: str, _info: dict[str, int]) -> None:
        for _ in range(2_000):
            pass

    room: dict[str, object] = {"__name__": "sqlglot.made"}
    exec("def allocates():\n    while True:\n        [[] for _ in range(100)]\n", room)
    gc.callbacks.append(collects)
    sys.unraisablehook = broken.append
    gc.set_threshold(20)
    sys.setswitchinterval(1e-6)  # threads change places at almost every step
    try:
        for _ in range(times):
            with pytest.raises(ValueError, match="late"):
                Deadline(0.005).watched(cast("Callable[[], None]", room["allocates"]), ValueError("late"))
    finally:
        sys.setswitchinterval(interval)
        gc.set_threshold(*limits)
        sys.unraisablehook = hook
        gc.callbacks.remove(collects)
    assert not broken


def test_what_nobody_could_hear_is_passed_over_and_all_else_goes_to_the_hook_before() -> None:
    class Raises:
        def __init__(self, error: BaseException) -> None:
            self.error = error

        def __del__(self) -> None:
            raise self.error

    seen: list[str] = []
    hook = sys.unraisablehook
    sys.unraisablehook = lambda unraisable: seen.append(str(unraisable.exc_value))
    try:
        before = sys.unraisablehook
        with budget._unheard:
            with budget._unheard:
                Raises(budget._OutOfTimeError())
            Raises(ValueError("told"))
        assert sys.unraisablehook is before
    finally:
        sys.unraisablehook = hook
    assert seen == ["told"]


def test_a_deadline_that_is_kept_leaves_nothing_behind() -> None:
    deadline = Deadline(60.0)
    assert deadline.watched(lambda: sum(range(1000)), ValueError("late")) == 499_500
    time.sleep(0.1)
    assert not any(thread.name == "tidelake-deadline" for thread in threading.enumerate())


PROFILED = """
import sys, threading, time
from tidelake.query.budget import Deadline
from tidelake.query.engines.spark import CLOSED, SETTINGS

def late():
    while True:
        [name for name in ("a", "b")]
late.__globals__["__name__"] = "tidelake.query.planning"

kept = Deadline(60.0)
for _ in range(3):
    assert kept.watched(lambda: "in time", ValueError("late")) == "in time"
try:
    Deadline(0.05).watched(late, ValueError("late"))
except ValueError:
    pass
seen = []
sys.setprofile(lambda frame, event, argument: seen.append(event))
(lambda: None)()
sys.setprofile(None)
assert "call" in seen
"""


def test_a_profiler_goes_on_working_after_a_deadline() -> None:
    run = subprocess.run([sys.executable, "-c", PROFILED], check=False, capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
