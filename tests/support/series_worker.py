"""Append to a table that keeps coverage from a process of its own, as many others do at the same time.

It does not import the tests, so that a process is soon there.
"""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import tidelake
from tidelake.errors import OverlapError

WITHIN_S = 120
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def rows_of(device: str, first: int, count: int, writer: int) -> list[dict[str, Any]]:
    """Make a row for each minute, which says who wrote it."""
    times = (EPOCH + timedelta(minutes=first + number) for number in range(count))
    return [{"ts": time, "device": device, "writer": writer} for time in times]


def claim_windows(where: str, number: int, windows: list[tuple[str, int, int]], start: Any, answers: Any) -> None:
    """Try every window once, in an order of this process's own, and tell which ones were won and which lost."""
    random.Random(number).shuffle(windows)
    with tidelake.connect(where) as lake:
        table = lake.table("m.cpu")
        start.wait(WITHIN_S)
        won, lost, wrong = [], [], []
        for device, first, count in windows:
            try:
                table.append(rows_of(device, first, count, number))
                won.append((device, first, count))
            except OverlapError as error:
                lost.append((device, first, str(error)))
            except Exception as error:
                wrong.append(f"{type(error).__name__} {error}")
        answers.put((number, won, lost, wrong))
