"""Bound what a query may cost: time on the wall, memory, bytes read from extents, and what it may reach outside.

A budget that is exceeded is an UnavailableError that says which, and by how much. ``external`` lists how the addresses
begin that ``externaldata`` may read; without it there are none. It does not measure anything.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from tidelake.errors import InvalidInputError, UnavailableError

DEFAULT_SECONDS = 600.0  # ten minutes: past it somebody stopped waiting
DEFAULT_MEMORY = 4 << 30  # of the local engine; what needs more belongs on Spark
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)i?b?\s*", re.IGNORECASE)
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


@dataclass(frozen=True, slots=True)
class Budget:
    """What one query may cost; ``read_bytes`` of None is without bound."""

    seconds: float = DEFAULT_SECONDS
    memory_bytes: int = DEFAULT_MEMORY
    read_bytes: int | None = None
    external: tuple[str, ...] = ()
    spent: float = 0.0  # seconds that planning took of it

    @classmethod
    def of(cls, given: Budget | Mapping[str, Any] | None) -> Budget:
        """Read a budget as people write it: ``{"seconds": 5, "memory": "1GB", "read": "200MB"}``."""
        if given is None or isinstance(given, Budget):
            return given or cls()
        names = {"memory": "memory_bytes", "read": "read_bytes"}
        known = {each.name for each in fields(cls)} - {"spent"}
        values: dict[str, Any] = {}
        for name, value in given.items():
            own = names.get(name, name)
            if own not in known:
                raise InvalidInputError(
                    f"a budget has seconds, memory, read and external, not {name!r}", kind="bad_budget"
                )
            if own == "external":
                values[own] = (value,) if isinstance(value, str) else tuple(map(str, value))
                continue
            values[own] = float(value) if own == "seconds" else parse_bytes(value)
        budget = cls(**values)
        if budget.seconds <= 0 or budget.memory_bytes <= 0:
            raise InvalidInputError("a budget must be more than zero", kind="bad_budget")
        return budget

    @property
    def engine_bytes(self) -> int:
        """The share of the memory that the local engine may hold: half, since what it gives is held besides."""
        return self.memory_bytes // 2

    @property
    def result_bytes(self) -> int:
        """The share of the memory that a result may take when all of its rows are collected."""
        return self.memory_bytes * 3 // 8

    @property
    def left(self) -> float:
        """The seconds that remain for running."""
        return max(self.seconds - self.spent, 0.0)

    def check_read(self, size: int) -> None:
        """Refuse a query whose plan reads more than it may."""
        if self.read_bytes is not None and size > self.read_bytes:
            raise UnavailableError(
                "the query would read more than its budget: narrow its time or ask for fewer columns",
                kind="read_budget",
                bytes=size,
                budget=self.read_bytes,
            )

    def out_of_time(self, *, planning: bool = False) -> UnavailableError:
        where = " to plan: make it shorter, or put long lists into a table" if planning else ""
        return UnavailableError(
            f"the query took longer than its budget{where}", kind="time_budget", seconds=self.seconds
        )

    def out_of_memory(self) -> UnavailableError:
        return UnavailableError(
            "the query needs more memory than its budget: narrow it, or run it with engine='spark'",
            kind="memory_budget",
            bytes=self.memory_bytes,
        )

    def out_of_result(self) -> UnavailableError:
        return UnavailableError(
            "the result is larger than its budget: read it as a stream with to_reader(), ask for less,"
            " or give more memory",
            kind="result_budget",
            bytes=self.result_bytes,
        )


def parse_bytes(value: str | int) -> int:
    """Read a size: a number of bytes, or text such as ``512MB``."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    match = _SIZE.fullmatch(str(value))
    if match is None:
        raise InvalidInputError(f"{value!r} is not a size such as 512MB or 2GB", kind="bad_budget")
    return int(float(match[1]) * _UNITS[match[2].lower()])
