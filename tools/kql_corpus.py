"""Measure KQL against real queries, and write the reference: ``python -m tools.kql_corpus``.

Each query of the corpus is parsed, then planned. The corpus has no schemas, so a table's columns are those that the
queries name: a table begins with none, and a name that the planner does not know becomes a column of the tables that
feed that place, until the plan stands or the same name is unknown again. A column's type is guessed from its name;
where a line does not fit the guess, the columns that it names become dynamic. It does not run queries.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa

from tidelake.errors import NotFoundError, QueryError
from tidelake.model.schema import DataType
from tidelake.query.kql import lower, parse
from tidelake.query.kql.aggregates import AGGREGATES, SEVERAL
from tidelake.query.kql.expanding import PLUGINS
from tidelake.query.kql.lowering import OPERATORS
from tidelake.query.kql.operators import ALIASES, RULES
from tidelake.query.kql.scalar_functions import FUNCTIONS
from tidelake.query.kql.specials import SPECIAL

CORPUS = Path(__file__).resolve().parents[2] / "shared" / "data" / "kql" / "queries.jsonl.zst"
PAGE = Path(__file__).resolve().parents[1] / "docs" / "kql.md"
MICROSOFT = "@kusto/language-service-next"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
MAX_GUESSES = 400  # names that one query may make us guess

_TIMES = re.compile(r"(time|timestamp|date|datetime|TimeGenerated|_t)$|^(TimeGenerated|timestamp)", re.IGNORECASE)
_NUMBERS = re.compile(r"(count|bytes|port|_d|size|length|duration|eventid|score|amount|total|number)$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one query fared: None is success, else the message."""

    path: str
    parse_error: str | None
    plan_error: str | None
    plan_kind: str


class GuessedTables:
    """Tables whose columns are learned from use."""

    def __init__(self, default: str) -> None:
        self.default = default
        self.known: dict[str, dict[str, DataType]] = {}

    def names(self) -> Sequence[str]:
        return list(self.known)

    def columns(self, name: str) -> Mapping[str, DataType]:
        if name not in self.known:
            raise NotFoundError("no such table", table=name)
        return self.known[name]

    def add_table(self, name: str) -> bool:
        if name in self.known or not name:
            return False
        self.known[name] = {}
        return True

    def add_column(self, name: str, tables: Sequence[str]) -> bool:
        """Give the tables a column; say whether any did not have it."""
        fresh = [table for table in tables if table in self.known and name not in self.known[table]]
        for table in fresh:
            self.known[table][name] = DataType.parse(self._type(name))
        return bool(fresh)

    def open_columns(self, line: str) -> bool:
        """Make the columns that a line names dynamic; say whether any was not."""
        words = set(re.findall(r"\w+", line))
        fresh = False
        for columns in self.known.values():
            for name in words & columns.keys():
                fresh |= columns[name].kind != "dynamic"
                columns[name] = DataType.parse("dynamic")
        return fresh

    def external(self, columns: Sequence[str], addresses: Sequence[str], options: Mapping[str, object]) -> str:
        """Stand in for data outside the lake, which a plan needs no rows of."""
        name = f"external_{len(self.known)}"
        self.known[name] = {column: DataType.parse("string") for column in columns}
        return name

    def _type(self, name: str) -> str:
        if _TIMES.search(name):
            return "timestamp"
        return "long" if _NUMBERS.search(name) and self.default == "string" else self.default


def queries(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the path and text of each query."""
    with pa.CompressedInputStream(pa.OSFile(str(path)), "zstd") as stream:
        for line in stream.read().decode().splitlines():
            if line:
                entry = json.loads(line)
                yield entry["path"], entry["query"]


def judge(path: str, text: str) -> Outcome:
    """Parse and plan one query."""
    try:
        parse(text)
    except QueryError as error:
        return Outcome(path, str(error), str(error), "syntax")
    remaining = plan(text, GuessedTables("string"))
    if remaining is not None and plan(text, GuessedTables("dynamic")) is not None:
        return Outcome(path, None, str(remaining), remaining.kind)
    return Outcome(path, None, None, "")


def plan(text: str, tables: GuessedTables) -> QueryError | None:
    """Lower a query, learning tables and columns as they are missed; give the error that remains."""
    for _ in range(MAX_GUESSES):
        try:
            lower(text, tables, now=NOW)
            return None
        except QueryError as error:
            if not _learned(error, tables, text):
                return error
    return QueryError("too many names to guess", kind="guesses")


def _learned(error: QueryError, tables: GuessedTables, text: str) -> bool:
    name = str(error.facts.get("name", ""))
    if error.kind == "unknown_table":
        return tables.add_table(name)
    if error.kind == "unknown_name":
        feeding = [table for table in str(error.facts.get("tables", "")).split(",") if table]
        return tables.add_column(name, feeding)
    if error.kind == "type":
        line = int(str(error.facts.get("line", 0)))
        return tables.open_columns(text.splitlines()[line - 1] if 0 < line <= len(text.splitlines()) else "")
    return False


def judged_by_microsoft(texts: Sequence[str], folder: Path) -> list[bool]:
    """Return of each query whether Microsoft's own parser calls it valid; it is fetched by npm into a folder."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        raise SystemExit("node and npm are needed for Microsoft's parser; leave out --microsoft to go without")
    subprocess.run([npm, "install", "--silent", MICROSOFT], cwd=folder, check=True, capture_output=True)
    (folder / "texts.json").write_text(json.dumps(list(texts)))
    (folder / "judge.js").write_text(_JUDGE)
    found = subprocess.run([node, "judge.js"], cwd=folder, check=True, capture_output=True, text=True)
    return [bool(answer) for answer in json.loads(found.stdout)]


_JUDGE = """
const path = '@kusto/language-service-next';
require(path + '/bridge.min.js');
require(path + '/Kusto.Language.Bridge.min.js');
const valid = JSON.parse(require('fs').readFileSync('texts.json', 'utf8')).map(text => {
  const found = Kusto.Language.KustoCode.Parse(text).GetDiagnostics();
  for (let at = 0; at < found.Count; at++) if (found.getItem(at).Severity !== 'Warning') return 0;
  return 1;
});
console.log(JSON.stringify(valid));
"""


@dataclass(frozen=True, slots=True)
class Measure:
    """What the corpus showed."""

    queries: int
    parsed: int
    planned: int
    valid: int | None
    agreed: int | None
    refused: int | None
    reasons: tuple[tuple[str, int], ...]


def measure(outcomes: Sequence[Outcome], valid: Sequence[bool] | None) -> Measure:
    """Count how the queries fared, beside Microsoft's parser if it was asked."""
    parsed = [outcome.parse_error is None for outcome in outcomes]
    reasons = Counter(_short(outcome) for outcome in outcomes if outcome.plan_error and not outcome.parse_error)
    agreed = refused = None
    if valid is not None:
        agreed = sum(ours and theirs for ours, theirs in zip(parsed, valid, strict=True))
        refused = sum(not ours and not theirs for ours, theirs in zip(parsed, valid, strict=True))
    planned = sum(outcome.plan_error is None for outcome in outcomes)
    return Measure(
        len(outcomes),
        sum(parsed),
        planned,
        sum(valid) if valid is not None else None,
        agreed,
        refused,
        tuple(reasons.most_common(12)),
    )


def numbers(found: Measure) -> str:
    """Write the numbers as the page has them."""
    share = f"{found.parsed / found.queries:.1%}", f"{found.planned / found.queries:.1%}"
    lines = ["| | queries | share |", "|---|---|---|"]
    lines.append(f"| in the corpus | {found.queries:,} | |")
    lines.append(f"| parse | {found.parsed:,} | {share[0]} |")
    if found.valid is not None and found.agreed is not None:
        lines.append(f"| valid for Microsoft's parser | {found.valid:,} | {found.valid / found.queries:.1%} |")
        lines.append(f"| of these, parse here | {found.agreed:,} | {found.agreed / found.valid:.1%} |")
        lines.append(f"| invalid there, refused here too | {found.refused} of {found.queries - found.valid} | |")
    lines.append(f"| plan | {found.planned:,} | {share[1]} |")
    lines += ["", "What keeps the others from planning, most frequent first:", ""]
    lines += [f"- {count} × {reason}" for reason, count in found.reasons]
    return "\n".join(lines)


def reference() -> str:
    """Write the reference: every operator, function and aggregate that there is, and those that are not."""
    lines = ["### Operators", "", "| operator | status |", "|---|---|"]
    for name in sorted(RULES):
        held = ALIASES.get(name, name)
        alias = f", another name of `{held}`" if held != name else ""
        lines.append(f"| `{name}` | {('works' + alias) if held in OPERATORS else 'parses, then a clear refusal'} |")
    lines += ["", f"`evaluate` knows {', '.join(f'`{name}`' for name in PLUGINS)}.", ""]
    lines += ["### Scalar functions", "", "| function | arguments | gives |", "|---|---|---|"]
    for name, function in sorted(FUNCTIONS.items()):
        if name == "ingestion_time":
            continue
        lines.append(f"| `{name}` | {_count(function.least, function.most)} | {function.result} |")
    lines.append(f"| {', '.join(f'`{name}`' for name in SPECIAL if name not in ('view',))} | | as their place needs |")
    lines += ["", "### Aggregates", "", "| aggregate | arguments | gives |", "|---|---|---|"]
    for name, aggregate in sorted(AGGREGATES.items()):
        lines.append(f"| `{name}` | {_count(aggregate.least, aggregate.most)} | {aggregate.result} |")
    lines += [f"| `{name}` | several | {text} |" for name, text in sorted(SEVERAL.items()) if name not in AGGREGATES]
    return "\n".join(lines)


def _count(least: int, most: int) -> str:
    return str(least) if least == most else f"{least} or more" if most >= 64 else f"{least} to {most}"


def between(page: str, mark: str, text: str) -> str:
    """Put a text between a page's marks."""
    pattern = rf"(<!-- {mark}: begin -->\n).*?(<!-- {mark}: end -->)"
    return re.sub(pattern, lambda match: f"{match[1]}{text}\n{match[2]}", page, flags=re.DOTALL)


def main() -> None:
    parser = argparse.ArgumentParser(description="measure KQL against real queries, and write docs/kql.md")
    parser.add_argument("--corpus", type=Path, default=CORPUS)
    parser.add_argument("--every", type=int, default=1, help="take every n-th query")
    parser.add_argument("--failures", type=int, default=0, help="show this many failures")
    parser.add_argument("--microsoft", action="store_true", help="ask Microsoft's parser too, by node and npm")
    parser.add_argument("--write", action="store_true", help="write the numbers and the reference into docs/kql.md")
    arguments = parser.parse_args()
    entries = list(queries(arguments.corpus))[:: arguments.every]
    outcomes = [judge(path, text) for path, text in entries]
    valid = None
    if arguments.microsoft:
        with tempfile.TemporaryDirectory() as folder:
            valid = judged_by_microsoft([text for _, text in entries], Path(folder))
    found = numbers(measure(outcomes, valid))
    print(found)
    for outcome in [o for o in outcomes if o.plan_error and not o.parse_error][: arguments.failures]:
        print(outcome.path, (outcome.plan_error or "")[:400], sep="\n")
    if arguments.write:
        page = between(between(PAGE.read_text(), "numbers", found), "reference", reference())
        PAGE.write_text(page)


def _short(outcome: Outcome) -> str:
    line = (outcome.plan_error or "").split("\n")[0]
    line = re.sub(r", did you mean.*", "", line)[:110]
    return re.sub(r"unknown (column|table|function)( or name)? '.*?'", r"unknown \1\2", line)


if __name__ == "__main__":
    main()
