"""Measure a process from outside: how long it takes, and how much memory it has at most.

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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

LOOK_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Measured:
    """How a process ended, the seconds it took since it was ready, and the bytes it gained at most."""

    ended: dict[str, Any]
    seconds: float
    gained_bytes: int


def measured(module: str, *arguments: str | Path, longest: float) -> Measured:
    """Run a module that says ``ready`` and then one line of JSON; past ``longest`` seconds it is ended."""
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
        first = most = process.memory_info().rss
        reader.start()
        while reader.is_alive() and time.monotonic() - began < longest:
            most = max(most, process.memory_info().rss)
            reader.join(LOOK_SECONDS)
        seconds = time.monotonic() - began
        if reader.is_alive():
            os.killpg(child.pid, signal.SIGKILL)
            return Measured({"raw": "did not end"}, seconds, most - first)
        os.killpg(child.pid, signal.SIGKILL)  # what it does afterwards is not measured
        text = answer[0] if answer else ""
        ended = json.loads(text) if text.strip() else {"raw": f"died: {''.join(complaints)[-500:]}"}
        return Measured(ended, seconds, most - first)
