"""Hold what a benchmark measured, and write it down: ratios first, then figures, method and limits.

It does not measure.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import date
from importlib.metadata import version
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import orjson

RESULTS = Path(__file__).parent / "results"
PACKAGES = ("numba", "numpy", "orjson", "pyarrow", "xxhash")
MOST_ROUNDS = 100  # written one by one; of more, the percentiles are


@dataclass(frozen=True, slots=True)
class Ratio:
    """Ours divided by a peer's: below one is better. A goal is the most it may be."""

    name: str
    ours: float
    peer: float
    unit: str
    goal: float | None = None

    @property
    def value(self) -> float:
        return self.ours / self.peer


@dataclass(frozen=True, slots=True)
class Report:
    """All that one benchmark found."""

    name: str
    workload: str
    ratios: tuple[Ratio, ...]
    seconds: Mapping[str, tuple[float, ...]]  # every round of every contender
    sizes: Mapping[str, int]  # bytes
    method: tuple[str, ...]
    rates: Mapping[str, float] = field(default_factory=dict)  # how often in a second


def machine() -> dict[str, Any]:
    """Return the facts that figures depend on, and nothing that names the machine."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cores": os.cpu_count(),
        "memory_gib": round(memory / 2**30, 1),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        **{package: version(package) for package in PACKAGES},
    }


def write_report(report: Report, folder: Path, *, day: date, load: float) -> Path:
    """Write the report as JSON and as Markdown; give the Markdown's place."""
    stem = folder / f"{day.isoformat()}-{report.name}"
    folder.mkdir(parents=True, exist_ok=True)
    facts = machine() | {"load_before": round(load, 2)}
    shape = {"day": day.isoformat(), "machine": facts, **asdict(report)}
    shape["ratios"] = [asdict(ratio) | {"value": round(ratio.value, 4)} for ratio in report.ratios]
    shape["seconds"] = {name: _kept_rounds(rounds) for name, rounds in report.seconds.items()}
    stem.with_suffix(".json").write_bytes(orjson.dumps(shape, option=orjson.OPT_INDENT_2) + b"\n")
    stem.with_suffix(".md").write_text(markdown(report, day=day, facts=facts))
    return stem.with_suffix(".md")


def markdown(report: Report, *, day: date, facts: Mapping[str, Any]) -> str:
    """Lay a report out for a person."""
    lines = [f"# {report.name}, {day.isoformat()}", "", report.workload, ""]
    lines += ["## Ratios", "", "| ours against a peer | ratio | goal | ours | peer |", "|---|---|---|---|---|"]
    lines += [_ratio_line(ratio) for ratio in report.ratios]
    lines += ["", "## Times", "", "| contender | median | fastest | slowest | rounds |", "|---|---|---|---|---|"]
    lines += [
        f"| {name} | {_amount(median(rounds), 's')} | {_amount(min(rounds), 's')} | {_amount(max(rounds), 's')} "
        f"| {len(rounds)} |"
        for name, rounds in report.seconds.items()
    ]
    if report.rates:
        lines += ["", "## Rates", "", "| contender | a second |", "|---|---|"]
        lines += [f"| {name} | {rate:,.0f} |" for name, rate in report.rates.items()]
    lines += ["", "## Sizes", "", "| what | bytes |", "|---|---|"]
    lines += [f"| {name} | {size:,} |" for name, size in report.sizes.items()]
    lines += ["", "## Method and limits", "", *(f"- {line}" for line in report.method)]
    lines += ["- " + ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in facts.items()) + "."]
    return "\n".join(lines) + "\n"


def _kept_rounds(rounds: tuple[float, ...]) -> list[float] | dict[str, Any]:
    """Return all rounds, or how many there were and their percentiles, of which the first and last are the extremes."""
    if len(rounds) <= MOST_ROUNDS:
        return list(rounds)
    inner = quantiles(rounds, n=100, method="inclusive")
    return {"rounds": len(rounds), "percentiles": [round(each, 6) for each in (min(rounds), *inner, max(rounds))]}


def _ratio_line(ratio: Ratio) -> str:
    goal = "" if ratio.goal is None else f"at most {ratio.goal:g}, {'met' if ratio.value <= ratio.goal else 'NOT met'}"
    ours, peer = _amount(ratio.ours, ratio.unit), _amount(ratio.peer, ratio.unit)
    return f"| {ratio.name} | **{ratio.value:.3f}** | {goal} | {ours} | {peer} |"


def _amount(value: float, unit: str) -> str:
    if unit == "bytes":
        return f"{value / 2**20:,.2f} MiB"
    if unit == "objects":
        return f"{value:,.0f}"
    if unit != "s":
        return f"{value:,.0f} {unit}"
    return f"{value:.2f} s" if value >= 1 else f"{value * 1000:.1f} ms"
