"""Ask one question after another: a line with history and completion, answers as tables and charts.

A question is KQL or SQL; it ends at the end of a line, unless the line asks for more (it ends with ``|`` or a comma, or
a bracket or quote is open). A word with a dot in front is for the shell: ``.help`` lists them. An error is shown and
the shell goes on. Without a terminal, questions are read from standard input, each up to a line that ends with ``;`` or
a blank line; errors then go to standard error, and are told in the end. It does not run queries: see ``lake``.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import pyarrow as pa
from rich.console import Console

from tidelake.cli.catalog_rows import Listing, about_lake, list_columns, list_extents, list_history, list_tables
from tidelake.cli.charts import chart
from tidelake.cli.output import Shown, table_of
from tidelake.errors import InvalidInputError, NotFoundError, QueryError, TidelakeError, not_installed
from tidelake.model.lexer import did_you_mean, tables_there_are
from tidelake.query.advice import next_steps
from tidelake.query.language import hinted, language_of

if TYPE_CHECKING:
    from prompt_toolkit.completion import Completer
    from prompt_toolkit.history import History
    from prompt_toolkit.input import Input
    from prompt_toolkit.output import Output

    from tidelake.lake import Lake

MAX_DRAWN = 10_000  # rows that a chart looks at

KQL_WORDS = (
    "where", "summarize", "by", "project", "extend", "count", "take", "top", "sort", "distinct", "join", "union", "let",
    "render", "timechart", "barchart", "columnchart", "piechart", "bin", "ago", "now", "datetime", "has", "contains",
    "startswith", "matches regex", "between", "project-away", "project-rename", "mv-expand", "parse", "make-series",
    "countif", "dcount", "avg", "sum", "min", "max", "percentile", "arg_max", "tostring", "toint", "desc", "asc", "and",
    "or", "not",
)  # fmt: skip
SQL_WORDS = (
    "select", "from", "where", "group by", "order by", "limit", "having", "join", "left join", "on", "as", "with",
    "count", "sum", "avg", "min", "max", "distinct", "between", "desc", "asc", "and", "or", "not", "timestamp as of",
)  # fmt: skip

HELP = """\
A question in KQL or SQL, for example
  obs.logs | where message has 'timeout' | summarize count() by bin(ts, 5m) | render timechart
  select service, count(*) from obs.logs group by service
ends at the end of the line; a line that ends with | or an open bracket goes on, and so does
one that is ended with Alt-Enter. Tab completes, the arrows bring back what was asked before.

  .tables             the tables of this lake
  .describe TABLE     its columns and what is known of them
  .history TABLE      its snapshots
  .extents TABLE      its extents
  .explain QUESTION   what the question would read
  .engine NAME        auto, local or spark
  .help               this
  .quit               leave; so does Ctrl-D
"""

COMMANDS = (".tables", ".describe", ".history", ".extents", ".explain", ".engine", ".help", ".quit")

_WORD = re.compile(r"[\w.\-@]*$")
_DEFINES = re.compile(r"\s*(?:let|set|declare|alias)\s")
_QUOTED = re.compile(r"'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"|//[^\n]*|--[^\n]*")


def run_shell(lake: Lake, console: Console, *, engine: str = "auto") -> bool:
    """Answer questions until there are no more; say whether all that came through a pipe could be answered."""
    if sys.stdin.isatty():
        shell = Shell(lake, console, engine)
        shell.greet()
        questions = _typed(shell)
    else:
        shell = Shell(lake, console, engine, Console(highlight=False, stderr=True))
        questions = read_questions(sys.stdin)
    for question in questions:
        if not shell.answer(question):
            break
    return sys.stdin.isatty() or not shell.failures


@dataclass(slots=True)
class Shell:
    """A lake, what answers are printed on, the engine that was chosen, and what errors are printed on."""

    lake: Lake
    console: Console
    engine: str = "auto"
    errors: Console | None = None  # the same as answers, if none is given
    failures: int = 0
    commands: Mapping[str, Callable[[str], None]] = field(init=False)

    def __post_init__(self) -> None:
        self.commands = {
            ".tables": lambda _: self._list(list_tables(self.lake)),
            ".describe": lambda name: self._list(list_columns(self.lake, self._named(name))),
            ".history": lambda name: self._list(list_history(self.lake, self._named(name))),
            ".extents": lambda name: self._list(list_extents(self.lake, self._named(name))),
            ".explain": lambda text: self.console.print(self._ask(text).explain(), markup=False, soft_wrap=True),
            ".engine": self._choose_engine,
            ".help": lambda _: self.console.print(HELP, markup=False),
        }

    def greet(self) -> None:
        """Say where we are and what to type first."""
        names = self.lake.tables()
        held = f"{len(names)} {'table' if len(names) == 1 else 'tables'}" + (
            f": {', '.join(names[:8])}{', …' if len(names) > 8 else ''}" if names else ""
        )
        self.console.print(f"[bold]tidelake[/bold] {self.lake.where}, {held}. Type .help for help, .quit to leave.")

    def answer(self, question: str) -> bool:
        """Answer one question or command; say whether to go on."""
        text = question.strip().rstrip(";").strip()
        if text in (".quit", ".exit", "exit", "quit"):
            return False
        try:
            self._answer(text)
        except (TidelakeError, ModuleNotFoundError) as error:
            told = not_installed(error) if isinstance(error, ModuleNotFoundError) else error
            if told is None:
                raise
            self.failures += 1
            (self.errors or self.console).print(str(told), style="red", markup=False, soft_wrap=True)
        except KeyboardInterrupt:
            self.console.print("stopped", style="yellow")
        return True

    def _answer(self, text: str) -> None:
        if not text:
            return
        if text.startswith("."):
            name, _, rest = text.partition(" ")
            if name not in self.commands:
                raise InvalidInputError(f"no command {name}{did_you_mean(name, self.commands) or ': .help lists them'}")
            self.commands[name](rest.strip())
            return
        if listing := about_lake(self.lake, text):
            self._list(listing)
            return
        began = time.perf_counter()
        result = self._ask(text)
        if result.render is not None and len(result):
            shown = drawn(result.render.kind, result.to_arrow(), width=self.console.width)
        else:
            shown = table_of(result.to_reader())
        took = time.perf_counter() - began
        self.console.print(shown)
        for each in next_steps(result, shown.total if isinstance(shown, Shown) else None):
            self.console.print(f"hint: {each}", style="cyan", markup=False, soft_wrap=True)
        for each in result.warnings:
            self.console.print(f"warning: {each}", style="yellow", markup=False)
        self.console.print(f"in {_seconds(took)}", style="dim")

    def _ask(self, text: str) -> Any:
        ask = self.lake.kql if language_of(text) == "kql" else self.lake.sql
        try:
            return ask(text, engine=self.engine)
        except QueryError as error:
            raise hinted(error, text) from error

    def _list(self, listing: Listing) -> None:
        self.console.print(listing.to_table(self.console.width))

    def _named(self, name: str) -> str:
        """Check that a table is named, and say which is close to one that is not there."""
        if not name:
            raise InvalidInputError("which table? give its name after the command")
        try:
            self.lake.catalog.table(name)
        except NotFoundError as error:
            names = self.lake.tables()
            told = error.message + (did_you_mean(name, names) or tables_there_are(names))
            raise NotFoundError(told, kind=error.kind, **error.facts) from error
        return name

    def _choose_engine(self, name: str) -> None:
        if name not in ("auto", "local", "spark"):
            raise InvalidInputError(f"no engine {name!r}: auto, local or spark")
        self.engine = name
        self.console.print(f"engine {name}")


def drawn(kind: str, table: pa.Table, *, width: int) -> Any:
    """Draw an answer as its ``render`` asks."""
    if kind == "table":
        return table_of(table.to_reader())
    rows = list(zip(*(column.to_pylist() for column in table.slice(0, MAX_DRAWN).columns), strict=True))
    return chart(kind, table.column_names, rows, width=width)


def read_questions(source: IO[str]) -> Iterator[str]:
    """Cut a text into questions: each ends with ``;`` at the end of a line, a blank line, or the end."""
    held: list[str] = []
    for line in source:
        is_over = not line.strip() or (not held and line.startswith("."))
        held.append(line)
        is_over = is_over or (line.rstrip().endswith(";") and not _only_defines("".join(held)))
        if is_over and "".join(held).strip():
            yield "".join(held)
        if is_over:
            held = []
    if "".join(held).strip():
        yield "".join(held)


def is_complete(text: str) -> bool:
    """Return whether Enter ends the question, or it goes on in the next line."""
    stripped = text.strip()
    if not stripped or stripped.startswith("."):
        return True
    if _only_defines(stripped):
        return False
    if stripped.endswith(";"):
        return True
    bare = _QUOTED.sub("", stripped)
    if bare.count("(") > bare.count(")") or bare.count("[") > bare.count("]") or "'" in bare or '"' in bare:
        return False
    return not bare.rstrip().endswith(("|", ","))


def _only_defines(text: str) -> bool:
    """Return whether a text ends with one of KQL's definitions, which a question is still to follow."""
    last = _QUOTED.sub("", text).rstrip().rstrip(";").rpartition(";")[2]
    return bool(_DEFINES.match(last))


def words_for(lake: Lake, text: str) -> Iterable[str]:
    """Yield what may follow in a question: tables, the columns of those it names, the words of its language."""
    names = [name.removeprefix("default.") for name in lake.tables()]
    yield from names
    for name in names:
        if name in text:
            yield from lake.snapshot(name).schema.names
    yield from KQL_WORDS if language_of(text) == "kql" else SQL_WORDS


def _typed(shell: Shell, source: Input | None = None, sink: Output | None = None) -> Iterator[str]:
    """Read questions from a terminal."""
    from prompt_toolkit import PromptSession

    session: PromptSession[str] = PromptSession(
        "tidelake> ",
        history=_history(),
        completer=_completer(shell.lake),
        complete_while_typing=False,
        multiline=True,
        prompt_continuation=lambda width, *_: "." * (width - 1) + " ",
        key_bindings=_keys(),
        input=source,
        output=sink,
    )
    while True:
        try:
            yield session.prompt()
        except KeyboardInterrupt:
            continue
        except EOFError:
            return


def _keys() -> Any:
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

    bindings = KeyBindings()

    @bindings.add("enter")
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if is_complete(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    @bindings.add("escape", "enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return bindings


def _completer(lake: Lake) -> Completer:
    from prompt_toolkit.completion import CompleteEvent, Completer, Completion
    from prompt_toolkit.document import Document

    class Words(Completer):
        """Complete the word before the cursor."""

        def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
            found = _WORD.search(document.text_before_cursor)
            word = found[0] if found else ""
            first = document.text_before_cursor.lstrip() == word and word.startswith(".")
            known = dict.fromkeys(COMMANDS if first else words_for(lake, document.text))
            for name in known:
                if name.lower().startswith(word.lower()) and name != word:
                    yield Completion(name, start_position=-len(word))

    return Words()


def _history() -> History:
    """Return what was asked before, in earlier sessions too if there is a place to keep it."""
    from prompt_toolkit.history import FileHistory, InMemoryHistory

    folder = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "tidelake"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "history").open("ab").close()
    except OSError:
        return InMemoryHistory()
    return FileHistory(str(folder / "history"))


def _seconds(took: float) -> str:
    return f"{took * 1000:.0f} ms" if took < 1 else f"{took:.2f} s"
