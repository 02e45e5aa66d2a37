"""Answer the API of Prometheus, so that Grafana, promtool and scripts that ask Prometheus can ask here.

``/api/v1/query``, ``query_range``, ``series``, ``labels``, ``label/<name>/values``, ``metadata``, remote read, and what
clients ask to know whom they talk to. Samples are those of ``prom_samples`` in the token's namespace, which remote
write makes, or of the table that ``?table=`` names. Where no times are given, ``series`` and ``labels`` look at the
last day. It does not write: see ``protocols.remote_write``.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import orjson

from tidelake.catalog.protocol import parse_table_name
from tidelake.errors import InvalidInputError, NotFoundError, QueryError
from tidelake.model.predicate import Nanoseconds
from tidelake.query.budget import Budget
from tidelake.query.parameters import literal
from tidelake.query.promql.asking import ask
from tidelake.query.promql.labels import NAME
from tidelake.query.promql.listing import Listing
from tidelake.query.promql.reading import duration_ms, parse
from tidelake.server.call import JSON, Answer, Call
from tidelake.server.doors.base import Asked, Door
from tidelake.server.doors.remote_read import read_queries, written_results
from tidelake.server.refusals import Failure

TABLE, METADATA = "prom_samples", "prom_metadata"
DAY_S = 86_400.0
MAX_RANGE_S = 100 * 366 * DAY_S
MOST_SERIES = 1_000_000  # that are listed
NONE: dict[str, Any] = {
    "rules": {"groups": []},
    "alerts": {"alerts": []},
    "alertmanagers": {"activeAlertmanagers": [], "droppedAlertmanagers": []},
    "targets": {"activeTargets": [], "droppedTargets": []},
    "query_exemplars": [],
    "flags": {},
    "config": {"yaml": ""},
    "runtimeinfo": {},
}
_ESCAPED = re.compile(r"__|_([0-9a-fA-F]{1,8})_")
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
    selectors = _selectors(asked)
    if not selectors:
        raise InvalidInputError("no match[] parameter provided", kind="bad_data")
    return _success(await _looked(asked, lambda listing: listing.series(selectors, _limit(asked))))


async def answer_labels(asked: Asked) -> Answer:
    """Answer with the names of labels: as statistics have them, where no selector asks for some series."""
    selectors, limit = _selectors(asked), _limit(asked)

    def look(listing: Listing) -> list[str]:
        known = None if selectors else listing.label_names()
        found = {name for labels in listing.series(selectors, MOST_SERIES) for name in labels} if known is None else ()
        return (sorted(found) if known is None else known)[:limit]

    return _success(await _looked(asked, look))


async def answer_values(asked: Asked) -> Answer:
    """Answer with the values of a label."""
    name, selectors, limit = _unescaped(asked.call.path["name"]), _selectors(asked), _limit(asked)

    def look(listing: Listing) -> list[str]:
        known = listing.metric_names() if name == NAME and not selectors else None
        if known is None:
            known = sorted({each[name] for each in listing.series(selectors, MOST_SERIES) if name in each})
        return known[:limit]

    return _success(await _looked(asked, look))


async def answer_nothing(asked: Asked) -> Answer:
    """Answer that there is none of what Prometheus has besides: rules, alerts, targets, exemplars."""
    return _success(NONE[asked.call.url_path.rpartition("/")[2]])


async def answer_format(asked: Asked) -> Answer:
    """Answer with a query as it is written best."""
    return _success(parse(_text(_told(asked))).prettify())


async def answer_read(asked: Asked) -> Answer:
    """Answer remote read with the samples of series, as they are stored."""
    told = _told(asked)
    queries = read_queries(asked.call.body)

    def make(budget: Budget, table: str) -> bytes:
        found = []
        for query in queries:
            listing = Listing(asked.lake, table, budget, asked.user, (query.start_ms, query.end_ms))
            found.append(listing.samples([query.conditions]))
        return written_results(found, budget.result_bytes)

    try:
        body = await _worked(asked, told, make)
    except NotFoundError:
        body = written_results([None] * len(queries), 1 << 20)
    headers = {"content-encoding": "snappy"}
    return Answer(200, body, "application/x-protobuf", headers)


async def answer_metadata(asked: Asked) -> Answer:
    """Answer with what is told of metrics."""
    wanted, metrics = _told(asked).get("metric"), _limit(asked)
    most = _number(asked, "limit_per_metric") or MOST_SERIES
    where = f"where name = {literal(wanted)}" if wanted else ""
    text = f"select distinct name, kind, help, unit from {METADATA} {where} order by name limit 100000"
    try:
        rows = await asked.questions.whole(asked.question(text, "sql"), lambda result: result.to_arrow().to_pylist())
    except (QueryError, NotFoundError):  # nobody has told anything yet
        rows = []
    found: dict[str, list[dict[str, str]]] = {}
    for row in rows:
        told = {"type": row["kind"] or "unknown", "help": row["help"] or "", "unit": row["unit"] or ""}
        if row["name"] in found or len(found) < metrics:
            found.setdefault(row["name"], []).append(told)
    return _success({name: several[:most] for name, several in found.items()})


async def answer_health(asked: Asked) -> Answer:
    """Say that the server is there, as Prometheus does."""
    return Answer(200, b"Prometheus Server is Healthy.\n", "text/plain")


async def answer_build(asked: Asked) -> Answer:
    """Say what answers."""
    return _success(VERSION)


def refuse(call: Call, failure: Failure) -> Answer:
    """Tell a failure as Prometheus does."""
    kinds = {401: "unauthorized", 403: "forbidden", 404: "not_found"}
    kinds |= {500: "internal", 503: "unavailable", 504: "timeout"}
    told = {"status": "error", "errorType": kinds.get(failure.status, "bad_data"), "error": failure.message}
    return Answer(failure.status, orjson.dumps(told), JSON, failure.headers)


def _asked(asked: Asked, told: dict[str, str], when: dict[str, Any], budget: Budget, table: str) -> bytes:
    """Return an answer as the API has it, but for its beginning."""
    if "timeout" in told:
        seconds = _positive_ms(told, "timeout") / 1000
        budget = replace(budget, seconds=min(seconds, budget.seconds))
    if "lookback_delta" in told:
        when = {**when, "lookback": _positive_ms(told, "lookback_delta") / 1000}
    text = _text(told)
    answer = ask(asked.lake, text, table=table, budget=budget, user=asked.user, **when).limited(_limit(asked))
    warnings = b',"warnings":' + orjson.dumps(answer.warnings) if answer.warnings else b""
    return b"".join((b'{"status":"success","data":', answer.to_json(), warnings, b"}"))


def _positive_ms(told: dict[str, str], name: str) -> int:
    found = duration_ms(told[name])
    if found <= 0:
        raise InvalidInputError(f"{name} is longer than nothing", got=told[name][:40], kind="bad_data")
    return found


async def _answered(asked: Asked, told: dict[str, str], make: Callable[[Budget, str], bytes], empty: str) -> Answer:
    try:
        body = await _worked(asked, told, make)
    except NotFoundError:  # nothing was written yet, which is no mistake of who asks
        body = b'{"status":"success","data":{"resultType":"%s","result":[]}}' % empty.encode()
    return Answer(200, body, JSON)


async def _worked(asked: Asked, told: dict[str, str], make: Callable[[Budget, str], Any]) -> Any:
    name = ".".join(parse_table_name(asked.call.table(told.get("table") or TABLE)))
    if not asked.may_see(name):
        raise NotFoundError("no such table", table=name, kind="no_table")
    running = asked.running(told.get("query", ""), "promql")
    return await asked.questions.worked(running, lambda budget: make(budget, name))


async def _looked(asked: Asked, look: Callable[[Listing], Any]) -> Any:
    """Look around in the table of samples within a range of time; there is nothing, if it is not there yet."""
    told = _told(asked)
    end = _time(told, "end", time.time())
    start = max(_time(told, "start", end - DAY_S), end - MAX_RANGE_S)
    interval = math.floor(start * 1000), math.ceil(end * 1000)
    try:
        return await _worked(
            asked, told, lambda budget, table: look(Listing(asked.lake, table, budget, asked.user, interval))
        )
    except NotFoundError:
        return []


def _unescaped(name: str) -> str:
    """Return the name of a label that Prometheus' clients write in an address as ``U__http_2e_method``."""
    if not name.startswith("U__"):
        return name
    try:
        return _ESCAPED.sub(lambda found: "_" if found[0] == "__" else chr(int(found[1], 16)), name[3:])
    except (ValueError, OverflowError):
        return name


def _selectors(asked: Asked) -> list[str]:
    return [value for name, value in asked.pairs if name == "match[]"]


def _limit(asked: Asked) -> int:
    return _number(asked, "limit") or MOST_SERIES


def _number(asked: Asked, name: str) -> int:
    told = _told(asked).get(name, "0")
    if not re.fullmatch(r"[0-9]{1,9}", told):
        raise InvalidInputError(f"{name} is a number", got=told[:40], kind="bad_data")
    return int(told)


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
_LOOKED_AT = ("GET", "HEAD")
_STATUS = ("flags", "config", "runtimeinfo")

DOORS = (
    Door("/api/v1/query", answer_query, _BOTH, refuse=refuse, is_long=True),
    Door("/api/v1/query_range", answer_range, _BOTH, refuse=refuse, is_long=True),
    Door("/api/v1/series", answer_series, _BOTH, refuse=refuse, is_long=True),
    Door("/api/v1/labels", answer_labels, _BOTH, refuse=refuse, is_long=True),
    Door("/api/v1/label/{name}/values", answer_values, ("GET",), refuse=refuse, is_long=True),
    Door("/api/v1/metadata", answer_metadata, ("GET",), refuse=refuse),
    Door("/api/v1/status/buildinfo", answer_build, ("GET",), refuse=refuse),
    *(Door(f"/-/{name}", answer_health, _LOOKED_AT, role="", refuse=refuse) for name in ("healthy", "ready")),
    Door("/api/v1/format_query", answer_format, _BOTH, refuse=refuse),
    Door("/api/v1/read", answer_read, ("POST",), refuse=refuse, encoding="snappy", is_long=True),
    *(Door(f"/api/v1/{name}", answer_nothing, ("GET",), refuse=refuse) for name in ("rules", "alerts", "targets")),
    *(Door(f"/api/v1/{name}", answer_nothing, _BOTH, refuse=refuse) for name in ("query_exemplars", "alertmanagers")),
    *(Door(f"/api/v1/status/{name}", answer_nothing, ("GET",), refuse=refuse) for name in _STATUS),
)
