"""Drive the shell: as text through a pipe, and key by key through its own line."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput
from rich.console import Console

import tidelake
from tidelake.cli.main import main
from tidelake.cli.shell import COMMANDS, HELP, Shell, _completer, _typed, is_complete, read_questions, words_for

ROWS = [
    {"ts": f"2026-03-14T12:{minute:02}:00Z", "service": ("auth", "web")[minute % 2], "took": minute}
    for minute in range(60)
]


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[tidelake.Lake]:
    """Yield a lake with a table of an hour."""
    with tidelake.connect(tmp_path / "lake") as lake:
        lake.create_table("obs.logs", {"ts": "timestamp", "service": "string", "took": "int"}).append(ROWS)
        yield lake


def answered(lake: tidelake.Lake, *questions: str) -> str:
    sink = io.StringIO()
    shell = Shell(lake, Console(file=sink, width=100, highlight=False))
    assert all(shell.answer(question) for question in questions)
    return sink.getvalue()


def test_a_question_in_either_language_is_answered_with_its_time(lake: tidelake.Lake) -> None:
    for question in ("select count(*) as n from obs.logs;", "obs.logs | summarize n = count()"):
        told = answered(lake, question)
        assert "60" in told
        assert "1 row" in told
        assert "in " in told


def test_render_draws(lake: tidelake.Lake) -> None:
    bars = answered(lake, "obs.logs | summarize total = sum(took) by service | render barchart")
    assert bars.count("█") > 20
    times = answered(lake, "obs.logs | summarize total = sum(took) by bin(ts, 10m) | render timechart")
    assert "2026-03-14 12:50:00" in times


def test_an_error_is_shown_and_the_shell_goes_on(lake: tidelake.Lake) -> None:
    told = answered(lake, "select nope from obs.logs", "obs.logs | were x", ".nonsense", ".describe", "select 1 as one")
    assert "nope" in told
    assert "were" in told
    assert "no command .nonsense" in told
    assert "which table?" in told
    assert "one" in told


def test_what_is_nearly_right_is_answered_with_what_is(lake: tidelake.Lake) -> None:
    assert "did you mean '.describe'?" in answered(lake, ".descrbe obs.logs")
    assert "no such table, did you mean 'obs.logs'?" in answered(lake, ".history obs.log")


def test_questions_about_the_lake_are_answered_from_its_catalog(lake: tidelake.Lake) -> None:
    assert "obs.logs" in answered(lake, "show tables;")
    assert "no such table" not in answered(lake, "describe obs.logs", "desc `obs.logs`", "SHOW COLUMNS FROM obs.logs")
    assert "timestamp" in answered(lake, "DESCRIBE TABLE obs.logs")
    assert "did you mean 'select' for 'selct'?" in answered(lake, "selct * from obs.logs")


def test_words_with_a_dot_are_for_the_shell(lake: tidelake.Lake) -> None:
    assert "obs.logs" in answered(lake, ".tables")
    assert "timestamp" in answered(lake, ".describe obs.logs")
    assert "append" in answered(lake, ".history obs.logs")
    assert "scan obs.logs" in answered(lake, ".explain obs.logs | where service == 'auth'")
    assert "engine local" in answered(lake, ".engine local")
    assert "no engine 'fast'" in answered(lake, ".engine fast")
    assert ".quit" in answered(lake, ".help")


def test_a_pipe_of_questions_is_answered_and_its_errors_are_told(tmp_path: Path) -> None:
    where = ["--lake", str(tmp_path / "lake")]
    CliRunner().invoke(main, ["init", *where])
    good = CliRunner().invoke(main, ["shell", *where], input="select 1 as one;\n.tables\n")
    assert (good.exit_code, good.stderr, "one" in good.stdout) == (0, "", True)
    bad = CliRunner().invoke(main, ["shell", *where], input="nope | count;\nselect 2 as two;\n")
    assert (bad.exit_code, "unknown table 'nope'" in bad.stderr, "nope" in bad.stdout, "two" in bad.stdout) == (
        1, True, False, True,
    )  # fmt: skip


@pytest.mark.parametrize("word", [".quit", "exit", "quit", ".exit;"])
def test_leaving(word: str, lake: tidelake.Lake) -> None:
    assert not Shell(lake, Console(file=io.StringIO())).answer(word)


def test_questions_of_a_pipe_end_with_a_semicolon_or_a_blank_line() -> None:
    text = "select 1;\n.tables\nobs.logs\n| take 5\n\nselect\n2"
    assert [" ".join(question.split()) for question in read_questions(io.StringIO(text))] == [
        "select 1;", ".tables", "obs.logs | take 5", "select 2",
    ]  # fmt: skip
    text = "let a = 5;\nlet b = ';';\nobs.logs | take a;\nobs.logs | count;\n"
    assert [question.count("\n") for question in read_questions(io.StringIO(text))] == [3, 1]


@pytest.mark.parametrize(
    ("text", "complete"),
    [
        ("obs.logs | take 5", True),
        ("obs.logs |", False),
        ("select count(", False),
        ("select 'a(' as b", True),
        ("select 'a", False),
        ("select a,", False),
        ("let a = 5;", False),
        ("let a = 5", False),
        ("let a = 'x;y'; let b = 6;\n", False),
        ("let a = 5; obs.logs | take a", True),
        ("let a = 5;\nobs.logs | take a;", True),
        (".tables", True),
        ("", True),
    ],
)
def test_enter_ends_a_question_that_is_whole(text: str, complete: bool) -> None:
    assert is_complete(text) == complete


def test_tables_columns_and_words_are_completed(lake: tidelake.Lake) -> None:
    known = set(words_for(lake, "obs.logs | where se"))
    assert {"obs.logs", "service", "took", "summarize"} <= known
    assert "service" not in set(words_for(lake, ""))
    assert "group by" in set(words_for(lake, "select "))
    offered = _completer(lake).get_completions(Document("obs.logs | where SER"), CompleteEvent())
    assert [(each.text, each.start_position) for each in offered] == [("service", -3)]
    lake.create_table("plain", {"ts": "timestamp"})
    for typed, wanted in (("pla", "plain"), (".descr", ".describe"), (".describe pla", "plain")):
        assert [each.text for each in _completer(lake).get_completions(Document(typed), CompleteEvent())] == [wanted]


def test_every_command_is_completed_and_in_the_help(lake: tidelake.Lake) -> None:
    assert {*Shell(lake, Console()).commands, ".quit"} == set(COMMANDS)
    assert all(command in HELP for command in COMMANDS)


def test_a_greeting_says_when_there_are_more_tables(lake: tidelake.Lake) -> None:
    for n in range(8):
        lake.create_table(f"t{n}", {"ts": "timestamp"})
    console = Console(file=io.StringIO(), width=1000)
    Shell(lake, console).greet()
    assert "9 tables: " in console.file.getvalue()  # type: ignore[attr-defined]
    assert ", …. Type .help" in console.file.getvalue()  # type: ignore[attr-defined]


def test_a_home_that_cannot_be_written_keeps_no_history(
    lake: tidelake.Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with create_pipe_input() as keys:
        keys.send_text("obs.logs\n")
        assert next(_typed(Shell(lake, Console(file=io.StringIO())), keys, DummyOutput())) == "obs.logs"


def test_lines_are_typed_and_remembered(lake: tidelake.Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    shell = Shell(lake, Console(file=io.StringIO()))
    with create_pipe_input() as keys:
        typed = _typed(shell, keys, DummyOutput())
        keys.send_text("obs.logs |\ntake 5\n")
        assert next(typed) == "obs.logs |\ntake 5"
        keys.send_text("\x1b[A\n")
        assert next(typed) == "obs.logs |\ntake 5"
        keys.send_text("\x04")
        assert list(typed) == []
    assert "take 5" in (tmp_path / "state" / "tidelake" / "history").read_text()


def test_an_empty_answer_is_followed_by_where_rows_are_and_a_table_that_is_not_by_those_there_are(
    lake: tidelake.Lake,
) -> None:
    assert "hint: obs.logs holds rows from 2026-03-14 12:00:00Z" in answered(lake, "obs.logs | where took > 99")
    assert "hint" not in answered(lake, "obs.logs | take 1")
    for question in ("xyzzy | count", "select * from xyzzy", ".describe xyzzy"):
        assert ": there are obs.logs" in answered(lake, question)
    lake.drop_table("obs.logs")
    assert "the lake is empty" in answered(lake, "xyzzy | count")
