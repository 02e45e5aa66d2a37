"""Make tables of clustered vectors, and find what is nearest by looking at every row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from tidelake.table import Table

SIZE = 12
COLUMNS = {"ts": "timestamp", "id": "long", "tag": "string", "v": f"vector({SIZE})"}
SECOND = 1_000_000
EPOCH_S = 1_767_225_600  # 2026-01-01


def clustered(rows: int, *, seed: int = 1, size: int = SIZE) -> Any:
    """Return vectors around some sixty places."""
    chance = np.random.default_rng(seed)
    places = np.random.default_rng(0).normal(0, 3, (60, size))
    return (places[chance.integers(0, 60, rows)] + chance.normal(0, 0.6, (rows, size))).astype(np.float32)


def arrow(vectors: Any, *, first: int = 0) -> pa.Table:
    """Return rows with these vectors, numbered from a first one on; None stands for a row without one."""
    ids = np.arange(first, first + len(vectors))
    times = pa.array((ids + EPOCH_S) * SECOND, pa.timestamp("us", "UTC"))
    column = pa.array(
        [None if each is None else list(map(float, each)) for each in vectors], pa.list_(pa.float32(), SIZE)
    )
    return pa.table({"ts": times, "id": ids, "tag": [f"t{n % 100}" for n in ids], "v": column})


def distances(metric: str, vectors: Any, query: Any) -> Any:
    """Measure every vector, in doubles."""
    wide, asked = np.asarray(vectors, np.float64), np.asarray(query, np.float64)
    if metric == "l2":
        return np.linalg.norm(wide - asked, axis=1)
    if metric == "dot":
        return -(wide @ asked)
    return 1 - wide @ asked / (np.linalg.norm(wide, axis=1) * np.linalg.norm(asked))


def recall_of(table: Table, vectors: Any, queries: Any, metric: str, **asked: Any) -> float:
    """Return how many of the ten nearest rows are found, whose ids are their numbers."""
    found = []
    for query in queries:
        truth = np.argsort(distances(metric, vectors, query))[:10]
        ids = table.nearest("v", query, columns=["id"], **asked)["id"].to_numpy()
        found.append(np.isin(truth, ids).mean())
    return float(np.mean(found))
