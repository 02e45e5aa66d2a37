"""Make the rows that benchmarks measure with: seeded, so that every run on every machine has the same ones.

Eight columns, as logs have them: a time, three strings of few values, an int, a real, a long that hardly repeats, and a
message of eight words. It does not write anything.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

ROWS = 4_000_000
SEED = 4_000_000
START_US = 1_773_446_400_000_000  # 2026-03-14 UTC
SPAN_US = 24 * 3_600_000_000
VOCABULARY = 4_096  # of the messages; rare words are as rare as in real logs
MESSAGE_WORDS = 8

_SERVICES = [f"service-{number:02}" for number in range(24)]
_LEVELS = ["DEBUG", "INFO", "WARN", "ERROR", "FATAL"]
_HOSTS = [f"node-{number:03}.eu" for number in range(200)]
_STATUSES = [200, 201, 204, 301, 400, 404, 409, 429, 500, 502, 503, 504]
_SYLLABLES = [
    "ba",
    "ce",
    "di",
    "fo",
    "gu",
    "ha",
    "je",
    "ki",
    "lo",
    "mu",
    "na",
    "pe",
    "ro",
    "su",
    "ta",
    "ve",
    "wi",
    "zu",
]


def log_table(rows: int = ROWS) -> pa.Table:
    """Make a day of log rows in time order, each column in one piece."""
    rng = np.random.default_rng(SEED)
    columns = {
        "ts": pa.array(START_US + np.sort(rng.integers(0, SPAN_US, rows)), pa.timestamp("us", tz="UTC")),
        "service": _chosen(rng, _SERVICES, rows),
        "level": _chosen(rng, _LEVELS, rows),
        "host": _chosen(rng, _HOSTS, rows),
        "status": _chosen(rng, _STATUSES, rows).cast(pa.int32()),
        "duration_ms": pa.array(np.round(rng.lognormal(3, 1, rows), 3)),
        "trace": pa.array(rng.integers(0, 2**62, rows)),
        "message": _messages(rng, rows),
    }
    return pa.table(columns)


def _chosen(rng: np.random.Generator, values: Sequence[object], rows: int) -> pa.Array:
    return pa.array(values).take(pa.array(_skewed(rng, len(values), rows)))


def _messages(rng: np.random.Generator, rows: int) -> pa.Array:
    words = pa.array(_words(rng))
    chosen = [words.take(pa.array(_skewed(rng, VOCABULARY, rows))) for _ in range(MESSAGE_WORDS)]
    return pc.binary_join_element_wise(*chosen, " ")


def _words(rng: np.random.Generator) -> list[str]:
    words: set[str] = set()
    while len(words) < VOCABULARY:
        words.add("".join(rng.choice(_SYLLABLES, int(rng.integers(1, 5)))))
    return sorted(words, key=lambda word: (len(word), word))


def _skewed(rng: np.random.Generator, count: int, rows: int) -> npt.NDArray[np.int64]:
    """Choose places so that the first is the most frequent and the last is rare."""
    return (rng.random(rows) ** 2 * count).astype(np.int64)
