"""Answer the API of Prometheus, so that Grafana, promtool and scripts that ask Prometheus can ask here.

``/api/v1/query``, ``query_range``, ``series``, ``labels``, ``label/<name>/values``, ``metadata``. Samples are those of
``prom_samples`` in the token's namespace, which remote write makes, or of the table that ``?table=`` names. Where no
times are given, ``series`` and ``labels`` look at the last day. It does not write: see ``protocols.remote_write``.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

import orjson

from tidelake.catalog.protocol import parse_table_name
from tidelake.errors import InvalidInputError, NotFoundError, QueryError
from tidelake.model.predicate import Nanoseconds
from tidelake.query.budget import Budget
from tidelake.query.parameters import literal
from tidelake.query.promql.answer import PromAnswer
from tidelake.query.promql.asking import ask
from tidelake.server.call import JSON, Answer, Call
from tidelake.server.doors.base import Asked, Door
from tidelake.server.refusals import Failure

TABLE, METADATA = "prom_samples", "prom_metadata"
DAY_S = 86_400.0
MAX_RANGE_S = 100 * 366 * DAY_S
VERSION = {"version": "3.0.0", "application": "tidelake", "revision": "", "branch": "", "goVersion": ""}


async def answer_query(asked: Asked) -> Answer:
    """Answer an instant query."""
    told = _told(asked)
    at = _time(told, "time", time.time())
    make = partial(_asked, asked, told, {"time": _instant(at)})
    return await _answered(asked, told, make, "vector")


async def answer_range(asked: Asked) -> Answer:
    """Answer a range query."""
    told = _told(asked)
    start, end = _time(told, "start"), _time(told, "end")
    step: str | float = told.get("step", "")
    try:
        step = float(step)
    except ValueError:
        if not step:
            raise InvalidInputError("a range query has a step", kind="bad_data") from None
    when = {"start": _instant(start), "end": _instant(end), "step": step}
    return await _answered(asked, told, partial(_asked, asked, told, when), "matrix")


async def answer_series(asked: Asked) -> Answer:
    """Answer with the series that selectors match."""
    found = await _series(asked, needed=True)
    return _success(found)


async def answer_labels(asked: Asked) -> Answer:
    """Answer with the names of labels."""
    return _success(sorted({name for labels in await _series(asked) for name in labels}))


async def answer_values(asked: Asked) -> Answer:
    """Answer with the values of a label."""
    name = asked.call.path["name"]
    return _success(sorted({labels[name] for labels in await _series(asked) if name in labels}))


async def answer_metadata(asked: Asked) -> Answer:
    """Answer with what is told of metrics."""
    wanted = _told(asked).get("metric")
    where = f"where name = {literal(wanted)}" if wanted else ""
    text = f"select distinct name, kind, help, unit from {METADATA} {where} order by name limit 100000"
    try:
        rows = await asked.questions.whole(asked.question(text, "sql"), lambda result: result.to_arrow().to_pylist())
    except (QueryError, NotFoundError):  # nobody has told anything yet
        rows = []
    found: dict[str, list[dict[str, str]]] = {}
    for row in rows:
        told = {"type": row["kind"] or "unknown", "help": row["help"] or "", "unit": row["unit"] or ""}
        found.setdefault(row["name"], []).append(told)
    return _success(found)


async def answer_build(asked: Asked) -> Answer:
    """Say what answers."""
    return _success(VERSION)


def refuse(call: Call, failure: Failure) -> Answer:
    """Tell a failure as Prometheus does."""
    kinds = {401: "unauthorized", 403: "forbidden", 404: "not_found", 503: "unavailable"}
    told = {"status": "error", "errorType": kinds.get(failure.status, "bad_data"), "error": failure.message}
    return Answer(failure.status, orjson.dumps(told), JSON, failure.headers)


def _asked(asked: Asked, told: dict[str, str], when: dict[str, Any], budget: Budget, table: str) -> bytes:
    return ask(asked.lake, _text(told), table=table, budget=budget, user=asked.user, **when).to_json()


async def _answered(asked: Asked, told: dict[str, str], make: Callable[[Budget, str], bytes], empty: str) -> Answer:
    try:
        data = await _worked(asked, told, make)
    except NotFoundError:  # nothing was written yet, which is no mistake of who asks
        data = b'{"resultType":"%s","result":[]}' % empty.encode()
    return Answer(200, b'{"status":"success","data":%s}' % data, JSON)


async def _worked(asked: Asked, told: dict[str, str], make: Callable[[Budget, str], Any]) -> Any:
    name = ".".join(parse_table_name(asked.call.table(told.get("table") or TABLE)))
    if not asked.may_see(name):
        raise NotFoundError("no such table", table=name, kind="no_table")
    running = asked.running(told.get("query", ""), "promql")
    return await asked.questions.worked(running, lambda budget: make(budget, name))


async def _series(asked: Asked, *, needed: bool = False) -> list[dict[str, str]]:
    """Return the label sets of all series that one of the selectors matches, within a range of time."""
    told = _told(asked)
    selectors = [value for name, value in asked.pairs if name == "match[]"]
    if needed and not selectors:
        raise InvalidInputError("no match[] parameter provided", kind="bad_data")
    end = _time(told, "end", time.time())
    start = _time(told, "start", end - DAY_S)
    seconds = max(1, math.ceil(min(end - start, MAX_RANGE_S)))
    texts = [f"last_over_time({each}[{seconds}s])" for each in selectors or ['{__name__=~".+"}']]

    def make(budget: Budget, table: str) -> list[PromAnswer]:
        return [
            ask(asked.lake, text, time=_instant(end), table=table, budget=budget, user=asked.user) for text in texts
        ]

    try:
        answers: Sequence[PromAnswer] = await _worked(asked, told, make)
    except NotFoundError:
        return []
    found = {tuple(sorted(labels.items())): labels for answer in answers for labels in answer.series}
    return [found[key] for key in sorted(found)]


def _told(asked: Asked) -> dict[str, str]:
    return dict(asked.pairs)


def _text(told: dict[str, str]) -> str:
    if not told.get("query", "").strip():
        raise InvalidInputError("there is no query", kind="bad_data")
    return told["query"]


def _instant(seconds: float) -> Nanoseconds:
    return Nanoseconds(round(seconds * 1000) * 1_000_000)


def _time(told: dict[str, str], name: str, default: float | None = None) -> float:
    """Return a time in seconds since 1970, which may be told as RFC 3339."""
    text = told.get(name)
    if text is None:
        if default is None:
            raise InvalidInputError(f"a range query has a {name}", kind="bad_data")
        return _seconds(default)
    try:
        return _seconds(float(text))
    except ValueError:
        return _parsed(text, name)


def _seconds(value: float) -> float:
    if not math.isfinite(value) or abs(value) > 2.5e11:
        raise InvalidInputError("a time is out of range", kind="bad_data")
    return value


def _parsed(text: str, name: str) -> float:
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidInputError(f"{name} is no time", got=text[:40], kind="bad_data") from error
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


def _success(data: Any) -> Answer:
    return Answer.json({"status": "success", "data": data})


_BOTH = ("GET", "POST")

DOORS = (
    Door("/api/v1/query", answer_query, _BOTH, refuse=refuse),
    Door("/api/v1/query_range", answer_range, _BOTH, refuse=refuse),
    Door("/api/v1/series", answer_series, _BOTH, refuse=refuse),
    Door("/api/v1/labels", answer_labels, _BOTH, refuse=refuse),
    Door("/api/v1/label/{name}/values", answer_values, ("GET",), refuse=refuse),
    Door("/api/v1/metadata", answer_metadata, ("GET",), refuse=refuse),
    Door("/api/v1/status/buildinfo", answer_build, ("GET",), refuse=refuse),
)
