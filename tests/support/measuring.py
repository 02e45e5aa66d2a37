"""Measure a process and its children from outside: how long they take, and how much memory they have at most.

What several of them share is counted for each. So the sum is never too small. A process can be asked one thing after
the other, since some take long to start; what it keeps of an earlier one counts for a later one too.

It does not know what the process does.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

LOOK_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Measured:
    """How something ended, the seconds it took, and the bytes that the process and its children gained since ready."""

    ended: dict[str, Any]
    seconds: float
    gained_bytes: int
    works_on: bool  # whether it said one more line, as one that is well does


class Running:
    """A module that says ``ready``, and for each line that it is given one line of JSON and one more line."""

    def __init__(self, module: str, *arguments: str | Path) -> None:
        self._child = subprocess.Popen(
            [sys.executable, "-m", module, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._complaints: list[str] = []
        self._threads: list[threading.Thread] = []
        self._started(self._listen)
        while (line := self._line()) and line != "ready\n":
            pass
        self._process = psutil.Process(self._child.pid)
        self._first = _resident_bytes(self._process)
        self.asked = 0
        self.is_well = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.end()

    def ask(self, line: str, *, longest: float, patience: float) -> Measured:
        """Measure what it does with a line.

        Past ``longest`` seconds it is ended, and if it does not work on after as many of ``patience``.
        """
        assert self.is_well
        assert self._child.stdin is not None
        self.asked += 1
        began = time.monotonic()
        with suppress(BrokenPipeError):
            self._child.stdin.write(f"{line}\n")
            self._child.stdin.flush()
        answer: list[str] = []
        reader = self._started(lambda: answer.append(self._line()))
        most = self._first
        while reader.is_alive() and time.monotonic() - began < longest:
            most = max(most, _resident_bytes(self._process))
            reader.join(LOOK_SECONDS)
        seconds, gained = time.monotonic() - began, most - self._first
        if reader.is_alive():
            self.end()
            return Measured({"raw": "did not end"}, seconds, gained, False)
        text = answer[0] if answer else ""
        after: list[str] = []
        reader = self._started(lambda: after.append(self._line()))
        reader.join(patience)  # what it does now is not measured
        works_on = any(map(str.strip, after))
        if not works_on:
            self.end()
        ended = json.loads(text) if text.strip() else {"raw": f"died: {''.join(self._complaints)[-500:]}"}
        return Measured(ended, seconds, gained, works_on)

    def end(self) -> None:
        """End it and all that it started."""
        self.is_well = False
        with suppress(ProcessLookupError):
            os.killpg(self._child.pid, signal.SIGKILL)
        for thread in self._threads:
            thread.join()
        with suppress(BrokenPipeError):
            self._child.__exit__(None, None, None)  # which closes its files

    def _started(self, work: Callable[[], object]) -> threading.Thread:
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        self._threads.append(thread)
        return thread

    def _line(self) -> str:
        assert self._child.stdout is not None
        return self._child.stdout.readline()

    def _listen(self) -> None:
        assert self._child.stderr is not None
        for line in self._child.stderr:
            self._complaints.append(line)


def _resident_bytes(process: psutil.Process) -> int:
    """Sum the resident memory of a process and of all that it started; one that has ended has none."""
    total, started = 0, []
    with suppress(psutil.Error):
        started = process.children(recursive=True)
    for each in [process, *started]:
        with suppress(psutil.Error):
            total += each.memory_info().rss
    return total
