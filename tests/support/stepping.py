"""Step workers by hand through named points, and run every order that can happen.

A worker is a function run in its own thread; at each of its points it stops until it is its turn. One worker moves at a
time, so an order is a list of names. ``every_order`` runs a world again and again, each time in another order, until
none is left. It does not know what the workers do, but is told which steps would wait for another worker's.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

STEP_WITHIN_S = 30.0

Worker: TypeAlias = Callable[[Callable[[str], None]], Any]  # gets the hook to call at its points, gives its result
World: TypeAlias = Callable[[], Mapping[str, Worker]]
Waits: TypeAlias = Callable[[str, str], bool]  # would a worker at the first point wait for one at the second?


@dataclass(slots=True)
class Outcome:
    """What one worker came to."""

    result: Any = None
    error: Exception | None = None


@dataclass(slots=True)
class Run:
    """One run of a world: the order of the steps, and what each worker came to."""

    order: list[str]
    outcomes: dict[str, Outcome]


class Stepper:
    """Hold workers at their points, and let them go one step at a time."""

    def __init__(self, workers: Mapping[str, Worker], points: Sequence[str]) -> None:
        self.where: dict[str, str | None] = {}
        self.outcomes: dict[str, Outcome] = {}
        self._points = frozenset(points)
        self._turn: str | None = None
        self._changed = threading.Condition()
        self._threads = [threading.Thread(target=self._work, args=each, daemon=True) for each in workers.items()]
        for thread, name in zip(self._threads, workers, strict=True):
            self.where[name] = "start"
            thread.start()

    def step(self, name: str) -> None:
        """Let one worker go on to its next point or to its end."""
        with self._changed:
            self.where[name] = None
            self._turn = name
            self._changed.notify_all()
            arrived = self._changed.wait_for(lambda: self.where[name] is not None, STEP_WITHIN_S)
            assert arrived, f"worker {name} is stuck; others are at {self.where}"

    def running(self) -> list[str]:
        """Return the workers that have not ended."""
        return sorted(name for name, where in self.where.items() if where != "end")

    def _work(self, name: str, worker: Worker) -> None:
        outcome = self.outcomes[name] = Outcome()
        self._wait_for_turn(name)
        try:
            outcome.result = worker(lambda point: self._arrive(name, point))
        except Exception as error:
            outcome.error = error
        with self._changed:
            self.where[name] = "end"
            self._changed.notify_all()

    def _arrive(self, name: str, point: str) -> None:
        if point in self._points:
            with self._changed:
                self.where[name] = point
                self._changed.notify_all()
            self._wait_for_turn(name)

    def _wait_for_turn(self, name: str) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._turn == name and self.where[name] is None)


@dataclass(slots=True)
class _Path:
    """A way through the tree of choices: what was chosen at each step, and what else could have been."""

    chosen: list[str] = field(default_factory=list)
    others: list[list[str]] = field(default_factory=list)

    def next(self) -> list[str] | None:
        """Return the beginning of the next way that was not taken yet."""
        for at in reversed(range(len(self.chosen))):
            if self.others[at]:
                return [*self.chosen[:at], self.others[at][0]]
        return None


def every_order(world: World, points: Sequence[str], waits: Waits) -> Iterator[Run]:
    """Run a fresh world in every order of its workers' steps in which no step waits for another worker's."""
    left: dict[tuple[str, ...], list[str]] = {}
    begin: list[str] | None = []
    while begin is not None:
        path = _Path()
        stepper = Stepper(world(), points)
        while running := stepper.running():
            where = stepper.where
            able = [
                name
                for name in running
                if not any(waits(where[name] or "", where[other] or "") for other in running if other != name)
            ]
            at = len(path.chosen)
            name = begin[at] if at < len(begin) else able[0]
            prefix = tuple(path.chosen)
            if prefix not in left:
                left[prefix] = [each for each in able if each != name]
            elif at < len(begin) and name in left[prefix]:
                left[prefix].remove(name)
            path.others.append(left[prefix])
            path.chosen.append(name)
            stepper.step(name)
        yield Run(path.chosen, stepper.outcomes)
        begin = path.next()
