"""Measure a process and its children from outside: how long they take, and how much memory they have at most.

What several of them share is counted for each. So the sum is never too small.

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
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

LOOK_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Measured:
    """How a process ended, the seconds it took since it was ready, and the bytes that it and its children gained."""

    ended: dict[str, Any]
    seconds: float
    gained_bytes: int
    works_on: bool  # whether it said one more line, as one that is well does


def measured(module: str, *arguments: str | Path, longest: float) -> Measured:
    """Run a module that says ``ready``, one line of JSON and one more line; past ``longest`` seconds it is ended."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as child:
        output, errors = child.stdout, child.stderr
        assert output is not None
        assert errors is not None
        complaints: list[str] = []
        threading.Thread(target=lambda: complaints.append(errors.read()), daemon=True).start()
        line = output.readline()
        while line and line != "ready\n":
            line = output.readline()
        process, began = psutil.Process(child.pid), time.monotonic()
        answer: list[str] = []
        reader = threading.Thread(target=lambda: answer.append(output.readline()), daemon=True)
        first = most = _resident_bytes(process)
        reader.start()
        while reader.is_alive() and time.monotonic() - began < longest:
            most = max(most, _resident_bytes(process))
            reader.join(LOOK_SECONDS)
        seconds = time.monotonic() - began
        if reader.is_alive():
            os.killpg(child.pid, signal.SIGKILL)
            return Measured({"raw": "did not end"}, seconds, most - first, False)
        after: list[str] = []
        reader = threading.Thread(target=lambda: after.append(output.readline()), daemon=True)
        reader.start()
        reader.join(longest)  # what it does now is not measured
        os.killpg(child.pid, signal.SIGKILL)
        text = answer[0] if answer else ""
        ended = json.loads(text) if text.strip() else {"raw": f"died: {''.join(complaints)[-500:]}"}
        return Measured(ended, seconds, most - first, any(map(str.strip, after)))


def _resident_bytes(process: psutil.Process) -> int:
    """Sum the resident memory of a process and of all that it started; one that has ended has none."""
    total, started = 0, []
    with suppress(psutil.Error):
        started = process.children(recursive=True)
    for each in [process, *started]:
        with suppress(psutil.Error):
            total += each.memory_info().rss
    return total
