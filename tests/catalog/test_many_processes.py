"""Check that processes take turns on SQLite and commit for each other, whoever is killed or stopped in between."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

import pytest

from tests.support.catalogs import SCHEMA, commit_of, hot
from tidelake.catalog.commit import Coordinator
from tidelake.catalog.protocol import new_id
from tidelake.catalog.sql.letters import LETTERS_SUFFIX, Letters
from tidelake.catalog.sql.sql_catalog import SqlCatalog
from tidelake.catalog.sql.turns import TURN_SUFFIX
from tidelake.errors import CommitUnknownError, StorageError, TidelakeError, UnavailableError
from tidelake.lake import connect
from tidelake.model.schema import Schema
from tidelake.model.snapshot import AppendHot, Commit, HotBatch, RemoveExtent, Scope

WITHIN_S = 120
HOLDERS_STEPS = ("letters.taken", "transaction.begun", "commit.swapped", "transaction.written", "transaction.committed")
ALL_STEPS = (*HOLDERS_STEPS, "commit.begin", "turn.waiting", "letter.posted", "letter.gone", "commit.end")


@pytest.fixture(scope="module")
def context() -> ForkServerContext:
    """Start processes from a clean one that has imported everything."""
    found = multiprocessing.get_context("forkserver")
    found.set_forkserver_preload(["tests.catalog.test_many_processes"])
    return found


@pytest.fixture
def where(tmp_path: Path) -> str:
    return str(tmp_path / "catalog.sqlite")


@pytest.fixture
def scope(where: str) -> Scope:
    with SqlCatalog(where) as catalog:
        return catalog.create_table("t", SCHEMA, {}).scope


def named(scope: Scope, name: str) -> Commit:
    """Make a commit whose only hot batch has a name."""
    return commit_of(scope, AppendHot(HotBatch(name, 1, b"payload", None, None, 1)))


def batches(catalog: SqlCatalog, scope: Scope) -> list[str]:
    return sorted(batch.id for batch in catalog.hot(scope))


def stopping(at: str | None, how: int) -> Callable[[str], None]:
    """Return a hook that kills or stops its process at a step."""

    def hook(step: str) -> None:
        if step == at:
            os.kill(os.getpid(), how)

    return hook


def commit_one(where: str, scope: Scope, name: str, answers: Any, at: str | None, how: int, deadline_s: float) -> None:
    """Commit one batch; put the outcome."""
    armed: list[str] = []
    hook = stopping(at, how)
    with SqlCatalog(where, deadline_s=deadline_s, at=lambda step: hook(step) if armed else None) as catalog:
        armed.append("the catalog is open")
        try:
            receipt = Coordinator(catalog, patience_s=deadline_s).commit(named(scope, name))
            answers.put((name, receipt.replayed))
        except TidelakeError as error:
            answers.put((name, type(error).__name__))


def wait_until_in_line(where: str, count: int) -> None:
    """Wait until so many threads wait in the kernel for the turn."""
    inode, end = os.stat(where + TURN_SUFFIX).st_ino, time.monotonic() + WITHIN_S
    while time.monotonic() < end:
        waiting = [line for line in Path("/proc/locks").read_text().splitlines() if "-> FLOCK" in line]
        if sum(f":{inode} " in line for line in waiting) >= count:
            return
        time.sleep(0.005)
    raise AssertionError("nobody came")


class Line:
    """Processes that stand in line, in order, while this one has the turn."""

    def __init__(self, context: ForkServerContext, where: str, scope: Scope) -> None:
        self._context, self._where, self._scope = context, where, scope
        self.answers = context.SimpleQueue()
        self.processes: list[Any] = []

    def join(self, name: str, *, at: str | None = None, how: int = signal.SIGKILL, deadline_s: float = 60.0) -> Any:
        """Have a process commit a batch; it waits for its turn when this returns."""
        words = (self._where, self._scope, name, self.answers, at, how, deadline_s)
        process = self._context.Process(target=commit_one, args=words)
        process.start()
        self.processes.append(process)
        return process

    def wait(self) -> None:
        wait_until_in_line(self._where, len(self.processes))

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.join(WITHIN_S)


@pytest.fixture
def line(context: ForkServerContext, where: str, scope: Scope) -> Iterator[Line]:
    line = Line(context, where, scope)
    yield line
    line.end()


def test_whoever_has_the_turn_commits_for_those_who_wait(line: Line, where: str, scope: Scope) -> None:
    with SqlCatalog(where) as catalog:
        with catalog._database.turn():
            for name in ("a", "b", "c"):
                line.join(name)
                line.wait()
        assert sorted(line.answers.get() for _ in range(3)) == [("a", False), ("b", False), ("c", False)]
        assert batches(catalog, scope) == ["a", "b", "c"]
        assert [batch.added_seq for batch in catalog.hot(scope)] == [2, 2, 2]
        assert catalog.head(scope).totals.hot_rows == 3
        assert os.listdir(where + LETTERS_SUFFIX) == []


@pytest.mark.parametrize("step", HOLDERS_STEPS)
def test_what_a_killed_holder_took_is_committed_once_by_its_sender(
    line: Line, where: str, scope: Scope, step: str
) -> None:
    with SqlCatalog(where) as catalog:
        with catalog._database.turn():
            for name, at in (("holder", step), ("b", None), ("c", None)):
                line.join(name, at=at)
                line.wait()
        assert sorted(line.answers.get() for _ in range(2)) == [("b", False), ("c", False)]
        line.processes[0].join(WITHIN_S)
        assert line.processes[0].exitcode == -signal.SIGKILL
        own = ["holder"] if step == "transaction.committed" else []
        assert batches(catalog, scope) == ["b", "c", *own]
        assert os.listdir(where + LETTERS_SUFFIX) == []


def test_the_letter_of_a_killed_sender_is_committed_by_nobody(line: Line, where: str, scope: Scope) -> None:
    with SqlCatalog(where) as catalog:
        with catalog._database.turn():
            line.join("a")
            line.wait()
            line.join("killed")
            line.wait()
            line.processes[1].kill()
            line.processes[1].join(WITHIN_S)
            assert len(os.listdir(where + LETTERS_SUFFIX)) == 2
        assert line.answers.get() == ("a", False)
        assert batches(catalog, scope) == ["a"]
        assert os.listdir(where + LETTERS_SUFFIX) == []


@pytest.mark.parametrize("step", ["turn.waiting", "letter.posted", "letter.gone"])
def test_a_sender_that_is_killed_leaves_its_commit_in_once_or_not_at_all(
    line: Line, where: str, scope: Scope, step: str
) -> None:
    with SqlCatalog(where) as catalog:
        with catalog._database.turn():
            line.join("a")
            line.wait()
            killed = line.join("killed", at=step)
            if step == "letter.gone":
                line.wait()
            else:
                killed.join(WITHIN_S)
        assert line.answers.get() == ("a", False)
        killed.join(WITHIN_S)
        assert killed.exitcode == -signal.SIGKILL
        assert batches(catalog, scope) == (["a", "killed"] if step == "letter.gone" else ["a"])


def test_others_end_by_their_deadline_while_the_holder_is_stopped(line: Line, where: str, scope: Scope) -> None:
    with SqlCatalog(where) as catalog:
        with catalog._database.turn():
            holder = line.join("holder", at="transaction.begun", how=signal.SIGSTOP)
            line.wait()
            line.join("taken", deadline_s=3.0)
            line.wait()
        while len(os.listdir(where + LETTERS_SUFFIX)):  # until the holder took it, and stopped
            time.sleep(0.005)
        line.join("late", deadline_s=1.0)
        answers = dict(line.answers.get() for _ in range(2))
        assert answers["taken"] == CommitUnknownError.__name__
        assert answers["late"] in (StorageError.__name__, UnavailableError.__name__)
        assert batches(catalog, scope) == []
        os.kill(holder.pid, signal.SIGCONT)
        assert line.answers.get() == ("holder", False)
        assert batches(catalog, scope) == ["holder", "taken"]
        Coordinator(catalog).commit(named(scope, "late"))
        assert batches(catalog, scope) == ["holder", "late", "taken"]


def test_a_refused_letter_is_refused_at_first_hand(line: Line, where: str, scope: Scope) -> None:
    with SqlCatalog(where) as catalog:
        with catalog._database.turn():
            line.join("a")
            line.wait()
            line.join("a")
            line.wait()
            line.join("b")
            line.wait()
        answers = [line.answers.get() for _ in range(3)]
        assert sorted(answers, key=str) == [("a", "InvalidInputError"), ("a", False), ("b", False)]
        assert batches(catalog, scope) == ["a", "b"]


def test_only_appends_are_posted_and_only_whole_letters_of_the_living_are_taken(where: str, scope: Scope) -> None:
    letters = Letters(where)
    assert letters.take(scope) == []
    ours, other = named(scope, "a"), named(Scope(new_id()), "b")
    posted, elsewhere = letters.post([ours]), letters.post([other])
    assert posted
    assert elsewhere
    assert letters.take(scope) == [ours]
    assert not posted.take_back()
    assert elsewhere.take_back()
    again = letters.post([ours])
    assert again
    assert again.take_back()
    assert letters.take(scope) == []
    for damage in (b"", b"short", b"x" * 100):
        letter = letters.post([ours])
        assert letter
        (name,) = os.listdir(where + LETTERS_SUFFIX)
        Path(where + LETTERS_SUFFIX, name).write_bytes(damage)
        assert letters.take(scope) == []
        assert not letter.take_back()
    removing = letters.post([commit_of(scope, RemoveExtent("x"))])
    assert removing
    assert letters.take(scope) == []
    dead = letters.post([ours])
    assert dead
    dead.close()
    assert letters.take(scope) == []
    assert os.listdir(where + LETTERS_SUFFIX) == []


def test_commits_go_on_where_there_can_be_no_turns(where: str, scope: Scope) -> None:
    with suppress(FileNotFoundError):
        os.unlink(where + TURN_SUFFIX)
    os.mkdir(where + TURN_SUFFIX)
    Path(where + LETTERS_SUFFIX).write_text("not a folder")
    with SqlCatalog(where) as first, SqlCatalog(where) as second:
        for number, catalog in enumerate((first, second, first)):
            Coordinator(catalog).commit(named(scope, f"{number}"))
        assert batches(first, scope) == ["0", "1", "2"]


def test_a_turn_is_not_lost_when_whoever_waited_for_it_gave_up(where: str, scope: Scope) -> None:
    with SqlCatalog(where, deadline_s=5) as first, SqlCatalog(where, deadline_s=0.05) as second:
        with first._database.turn():
            for _ in range(3):
                with pytest.raises(StorageError, match="busy"):
                    second.register_pending([])
        for name, catalog in (("a", first), ("b", second), ("c", first)):
            Coordinator(catalog).commit(named(scope, name))
        assert batches(first, scope) == ["a", "b", "c"]


# many writers


def append_rows(folder: str, writer: int, appends: int, start: Any, answers: Any) -> None:
    """Append rows as one process of many; put what went wrong."""
    errors = []
    with connect(folder) as lake:
        table = lake.table("t")
        start.wait(WITHIN_S)
        for number in range(appends):
            try:
                table.append([{"writer": writer, "number": number}])
            except Exception as error:
                errors.append(f"{type(error).__name__} {error}")
    answers.put(errors)


def widen(folder: str, end: Any) -> None:
    """Add columns until the writers are done."""
    with connect(folder) as lake:
        table, number = lake.table("t"), 0
        while not end.wait(0.05):
            table.append([{"writer": -1, "number": number, f"added_{number}": number}])
            number += 1


def flush(folder: str, end: Any) -> None:
    """Flush hot rows until the writers are done."""
    with connect(folder) as lake:
        table = lake.table("t")
        while not end.wait(0.05):
            table.flush()


def append_together(context: ForkServerContext, folder: Path, writers: int, appends: int, beside: Any = ()) -> None:
    """Let processes append, and check that every row is there once."""
    with connect(folder) as lake:
        lake.create_table("t", Schema.of({"writer": "long", "number": "long"}))
        start, answers, end = context.Barrier(writers), context.Queue(), context.Event()
        others = [context.Process(target=each, args=(str(folder), end)) for each in beside]
        processes = [
            context.Process(target=append_rows, args=(str(folder), writer, appends, start, answers))
            for writer in range(writers)
        ]
        for process in (*others, *processes):
            process.start()
        errors = [error for _ in processes for error in answers.get(timeout=WITHIN_S * 5)]
        end.set()
        for process in (*processes, *others):
            process.join(WITHIN_S)
            assert process.exitcode == 0
        assert errors == []
        rows = lake.table("t").scan(columns=["writer", "number"]).read_all().to_pylist()
        found = Counter((row["writer"], row["number"]) for row in rows if row["writer"] >= 0)
        assert found == Counter((writer, number) for writer in range(writers) for number in range(appends))


def test_eight_processes_append_beside_each_other_and_no_row_is_lost_or_doubled(
    context: ForkServerContext, tmp_path: Path
) -> None:
    append_together(context, tmp_path / "lake", 8, 50)


@pytest.mark.torture
def test_sixty_four_processes_append_beside_a_widener_and_a_flusher(context: ForkServerContext, tmp_path: Path) -> None:
    append_together(context, tmp_path / "lake", 64, 100, beside=(widen, flush))


def write_until_a_step_kills(where: str, scope: Scope, journal: str, seed: int) -> None:
    """Append for ever, noting what is acknowledged, and be killed at some step of some commit."""
    rng = random.Random(seed)
    step, left = rng.choice(ALL_STEPS), rng.randrange(1, 8)

    def hook(found: str) -> None:
        nonlocal left
        left -= found == step
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)

    with SqlCatalog(where, at=hook) as catalog, open(journal, "ab", buffering=0) as file:
        coordinator = Coordinator(catalog)
        for _ in range(100):  # a step that never comes must not hold up the test
            batch = hot(1)
            coordinator.commit(commit_of(scope, AppendHot(batch)))
            file.write(f"{batch.id}\n".encode())


def kill_at_steps(
    context: ForkServerContext, where: str, scope: Scope, folder: Path, *, writers: int, ends: int
) -> int:
    """Start writers again and again as steps kill them; check what is left, and return how many were killed."""
    rng, running, killed = random.Random(11), dict[int, Any](), 0
    for number in range(ends + writers):
        if len(running) == writers:
            name = next(iter(running))
            running[name].join(WITHIN_S)
            killed += running.pop(name).exitcode == -signal.SIGKILL
        words = (where, scope, str(folder / f"journal-{number}"), rng.randrange(10**9))
        running[number] = context.Process(target=write_until_a_step_kills, args=words)
        running[number].start()
    for process in running.values():
        process.join(WITHIN_S)
        killed += process.exitcode == -signal.SIGKILL
    acknowledged = {name for file in folder.glob("journal-*") for name in file.read_text().split()}
    with SqlCatalog(where) as catalog:
        manifest = catalog.manifest(scope)
        assert acknowledged <= set(manifest.hot)
        assert len(manifest.hot) <= len(acknowledged) + killed
        assert manifest.snapshot.totals.hot_rows == len(manifest.hot)
    return killed


def test_writers_killed_at_any_step_lose_and_double_nothing(
    context: ForkServerContext, where: str, scope: Scope, tmp_path: Path
) -> None:
    assert kill_at_steps(context, where, scope, tmp_path, writers=4, ends=6) > 4


@pytest.mark.torture
def test_many_writers_killed_at_any_step_lose_and_double_nothing(
    context: ForkServerContext, where: str, scope: Scope, tmp_path: Path
) -> None:
    assert kill_at_steps(context, where, scope, tmp_path, writers=12, ends=300) > 150
