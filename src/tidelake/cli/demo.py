"""Show a newcomer what a lake does, in about a minute: load, stream, find an incident, look behind the scenes.

The telemetry is made up and seeded, see ``telemetry``; everything else is real: files, Spark, commits, queries. Each
step says what it does, does it with the library, and shows the answer. The lake is left for the reader to play with. It
does not clean up: a second run begins with an empty folder of the same name.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.panel import Panel
from rich.syntax import Syntax
from rich.text import Text

from tidelake.cli.output import table_of
from tidelake.cli.shell import drawn
from tidelake.cli.telemetry import DIED, START, log_lines, metric_rows, write_ndjson
from tidelake.errors import InvalidInputError, UnavailableError
from tidelake.lake import Lake, connect
from tidelake.query.language import language_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG_LINES = 150_000
LOG_FILES = 10
STREAMED_FILES = 3  # dropped after the load, as if they came later
MARK = "tidelake-demo"  # a file that says that a folder may be emptied

QUESTIONS = (
    (
        "When did it go wrong?",
        """\
obs.logs
| where level == "ERROR"
| summarize errors = count() by bin(ts, 5m)
| order by ts asc
| render timechart""",
    ),
    (
        "Who complained?",
        """\
obs.logs
| where ts between (datetime(2026-03-14T12:40:00Z) .. datetime(2026-03-14T13:05:00Z)) and level == "ERROR"
| summarize errors = count() by service
| order by errors desc
| render barchart""",
    ),
    (
        "What was the very first sign? A word in a message, found without reading the rest",
        """\
SELECT ts, host, level, message
FROM obs.logs
WHERE has(message, 'OutOfMemoryError') OR message LIKE 'heap at %'
ORDER BY ts LIMIT 3""",
    ),
    (
        "Which version was running? A path inside a dynamic column that no schema declared",
        """\
obs.logs
| where service == "payments" and message has "OutOfMemoryError"
| summarize lines = count(), first = min(ts), last = max(ts) by version = tostring(attributes.deploy.version)""",
    ),
    (
        "Did memory climb before it died?",
        """\
SELECT date_trunc('hour', ts) AS hour, host, round(max(memory), 1) AS highest_memory
FROM obs.metrics WHERE service = 'payments'
GROUP BY 1, 2 ORDER BY 3 DESC LIMIT 4""",
    ),
)
NEEDLE = "SELECT ts, service, message FROM obs.logs WHERE trace_id = '{trace}'"


def run_demo(folder: str, console: Console, *, lines: int = LOG_LINES) -> None:
    """Run every step; leave the lake in the folder."""
    began = time.perf_counter()
    require_java()
    import_module("pyspark")  # or say now that it is missing
    root = _emptied(Path(folder))
    console.print(
        Panel(Text("Six hours of a small shop: logs, metrics, and one incident. Let us find it."), expand=False)
    )
    with _step(console, "Make telemetry, as files on a disk"):
        logs = write_ndjson(log_lines(lines), root / "files" / "logs", "logs", per_file=-(-lines // LOG_FILES))
        metrics = write_ndjson(metric_rows(), root / "files" / "metrics", "metrics", per_file=100_000)
        console.print(f"  {len(logs)} files of log lines, {len(metrics)} file of metrics, NDJSON")
    with connect(root / "lake") as lake:
        _fill(console, lake, root, logs, metrics)
        for number, (title, text) in enumerate(QUESTIONS, start=1):
            _ask(console, lake, f"Question {number}. {title}", text)
        _show_funnel(console, lake)
        _evolve_and_travel(console, lake)
        _show_gaps(console, lake)
    console.print(_what_next(root, time.perf_counter() - began))


def require_java() -> None:
    """Refuse in one line where Spark could not start."""
    home = os.environ.get("JAVA_HOME")
    if not shutil.which("java") and not (home and (Path(home) / "bin" / "java").exists()):
        raise UnavailableError(
            "the demo loads with Spark, which needs Java 17: install a JDK such as openjdk-17-jre-headless; "
            "without one, `tidelake ingest` and `tidelake query` work",
            kind="no_java",
        )


def _fill(console: Console, lake: Lake, root: Path, logs: list[Path], metrics: list[Path]) -> None:
    """Load most files in one Spark job each, and stream the rest as they are dropped."""
    from tidelake.spark.drops import watch
    from tidelake.spark.jobs import load

    with _step(console, "Start Spark, inside this process (a cluster is a --master away)"):
        spark = _quiet_spark()
    early, late = logs[:-STREAMED_FILES], logs[-STREAMED_FILES:]
    with _step(console, "Load the logs: tasks write extents, one commit publishes them"):
        report = load(lake, "obs.logs", [str(file) for file in early], time="ts", spark=spark)
        console.print(
            f"  {report.rows:,} rows of {report.files} files, snapshot {report.snapshot}, schema found by itself"
        )
    with _step(console, "Load the metrics into a table that knows its minutes: one series per host"):
        columns = {"ts": "timestamp", "host": "string", "service": "string", "cpu": "real", "memory": "real"}
        lake.create_table("obs.metrics", columns, time="ts", bucket="1m", entity=["host"], coverage="track")
        report = load(lake, "obs.metrics", [str(file) for file in metrics], spark=spark)
        console.print(f"  {report.rows:,} rows, snapshot {report.snapshot}")
    with _step(console, "Stream the latest files: each is dropped, picked up, and committed once"):
        folder = root / "drop" / "obs" / "logs"
        folder.mkdir(parents=True)
        for file in late:
            shutil.copy(file, folder / file.name)
        for drop in watch(lake, root / "drop", once=True, spark=spark):
            console.print(f"  {drop.files} files, {drop.rows:,} rows")
        for file in late:
            shutil.copy(file, folder / f"again-{file.name}")
        for drop in watch(lake, root / "drop", once=True, spark=spark):
            console.print(f"  the same files dropped again: {drop.replayed} recognised, {drop.rows} rows added")


def _quiet_spark() -> SparkSession:
    """Start a session that does not talk over the demo: what the JVM says while it starts is shown if it fails."""
    from tidelake.spark import session

    with tempfile.TemporaryFile() as said:
        stderr = os.dup(2)
        os.dup2(said.fileno(), 2)
        try:
            spark = session(app="tidelake demo", spark__sql__shuffle__partitions="4", spark__log__level="ERROR")
        except BaseException:
            said.seek(0)
            os.write(stderr, said.read())
            raise
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
    return spark


def _ask(console: Console, lake: Lake, title: str, text: str) -> None:
    language = language_of(text)
    console.rule(f"[bold]{title}", align="left", style="dim")
    console.print(Syntax(text, "sql" if language == "sql" else "kusto", background_color="default", word_wrap=True))
    began = time.perf_counter()
    result = lake.sql(text) if language == "sql" else lake.kql(text)
    table = result.to_arrow()
    took = time.perf_counter() - began
    if result.render is not None:
        console.print(drawn(result.render.kind, table, width=min(console.width, 100)))
    else:
        console.print(table_of(table.to_reader()))
    console.print(f"in {took * 1000:,.0f} ms, in this process\n", style="dim")


def _show_funnel(console: Console, lake: Lake) -> None:
    """Look for one request among all lines, and show how little was read for it."""
    rows = lake.table("obs.logs").scan(["trace_id"], start=DIED, limit=1).read_all()
    trace = rows.column("trace_id")[0].as_py()
    text = NEEDLE.format(trace=trace)
    console.rule("[bold]One request in all of it: what was read?", align="left", style="dim")
    console.print(Syntax(text, "sql", background_color="default", word_wrap=True))
    console.print(lake.sql(text).explain(), markup=False, soft_wrap=True)
    console.print()


def _evolve_and_travel(console: Console, lake: Lake) -> None:
    """Append a row with a field that nobody declared; then read the table as it was before."""
    logs = lake.table("obs.logs")
    before = logs.snapshot.sequence
    console.rule("[bold]Evolve: a field that nobody declared", align="left", style="dim")
    row = {
        "ts": "2026-03-14T15:00:01Z",
        "service": "auth",
        "level": "INFO",
        "message": "post-mortem done",
        "region": "eu",
    }
    report = logs.append([row])
    console.print(f"appended {row}", markup=False, highlight=False)
    console.print(f"snapshot {report.snapshot} has the column region: {'region' in logs.schema}")
    old = lake.table("obs.logs", snapshot=before)
    console.print(f"snapshot {before}, read again: {'region' in old.schema}, as it was\n")


def _show_gaps(console: Console, lake: Lake) -> None:
    """Name the minutes that are missing, without reading a row."""
    console.rule("[bold]What is missing? The table knows, without reading a row", align="left", style="dim")
    console.print(Syntax("metrics.coverage.gaps()", "python", background_color="default"))
    console.print(table_of(lake.table("obs.metrics").coverage.gaps().to_reader()))
    console.print("pay-2 was silent while it was down; web-3 lost nine minutes that nobody had noticed.\n")


def _what_next(root: Path, took: float) -> Panel:
    place = root / "lake"
    lines = [
        f"Done in {took:.0f} s. The lake is yours: {place}",
        "",
        f"  tidelake ui --lake {place}      the same in a browser: ask, look, drill, see what is missing",
        f"  tidelake shell --lake {place}",
        f"  tidelake query --lake {place} \"obs.logs | where level == 'ERROR' | take 5\"",
        f"  tidelake explain --lake {place} \"obs.logs | where message has 'OutOfMemoryError'\"",
        f"  tidelake history obs.logs --lake {place}",
        f"  tidelake gaps obs.metrics --lake {place}",
        f"  python -c \"import tidelake; print(tidelake.connect('{place}').table('obs.logs'))\"",
    ]
    return Panel(Text("\n".join(lines)), title="what to try next", title_align="left")


@contextmanager
def _step(console: Console, title: str) -> Iterator[None]:
    """Return what is under way, and how long it took."""
    console.print(f"[bold]{title}[/bold]")
    began = time.perf_counter()
    yield
    console.print(f"  {time.perf_counter() - began:.1f} s", style="dim")


def _emptied(root: Path) -> Path:
    """Make the folder, or empty it if it is an earlier demo's."""
    if root.exists() and any(root.iterdir()):
        if not (root / MARK).exists():
            raise InvalidInputError("the folder holds something else: give the demo another one", folder=root)
        shutil.rmtree(root)
    root.mkdir(parents=True, exist_ok=True)
    (root / MARK).write_text(f"made by tidelake demo; it begins {START.isoformat()}\n")
    return root
