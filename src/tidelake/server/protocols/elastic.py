"""Take documents from Elasticsearch's clients and agents: ``_bulk``, ``_doc``, and what they ask before they send.

An index is a table; what a table's name cannot have becomes ``_``. A document is a row, with its ``@timestamp`` as the
time, or the time it came if it has none; an ``_id`` that is given is a column. ``index`` and ``create`` both append: a
document is never taken for a newer version of another, so ``update`` and ``delete`` are refused, each for its own item.
It does not search.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any

import orjson
import pyarrow as pa

from tidelake.errors import InvalidInputError, TidelakeError
from tidelake.ingest.instants import NO_TIME, times_of_texts
from tidelake.server.call import Answer, Call, Load, Outcome, Route, Work
from tidelake.server.protocols.naming import table_name
from tidelake.server.refusals import Failure, failure_of

TIME = "@timestamp"
VERSION = "9.1.0"  # whose answers these are like
PRODUCT = {"x-elastic-product": "Elasticsearch"}  # clients refuse to talk to anything else
CLUSTER = "tidelake"

_KNOWN = frozenset({"index", "create", "update", "delete"})


@dataclass(slots=True)
class _Item:
    """One document, what its client wants with it, and what is wrong with it."""

    action: str
    index: str
    id: str
    document: bytes = b""
    error: tuple[int, str, str] | None = None
    time: Any = None
    has_id: bool = False


@dataclass(slots=True)
class _Plan:
    """The documents of a request, and for each table those that go there."""

    items: list[_Item] = field(default_factory=list)
    by_table: dict[str, list[_Item]] = field(default_factory=dict)


def decode_bulk(call: Call) -> Work:
    """Decode lines of actions and documents."""
    return _work(call, list(_items(call)), _bulk_answer)


def decode_document(call: Call) -> Work:
    """Decode one document."""
    item = _Item("create", call.path["index"], call.path.get("id") or _new_id(0), call.body.strip())
    item.has_id = "id" in call.path
    return _work(call, [item], _document_answer)


def refuse(call: Call, failure: Failure) -> Answer:
    """Tell a failure in Elasticsearch's words."""
    cause = {"type": _type_of(failure.status), "reason": failure.message}
    body = {"error": {"root_cause": [cause], **cause}, "status": failure.status}
    return _told(body, failure.status, **failure.headers)


def _work(call: Call, items: list[_Item], answer: Callable[[_Plan, Sequence[Outcome]], Answer]) -> Work:
    if not items:
        raise InvalidInputError("there are no documents", kind="no_rows")
    plan = _Plan(items)
    for item in items:
        _read(item)
    _check_times([item for item in items if item.error is None and isinstance(item.time, str)])
    now = datetime.fromtimestamp(call.received_us / 1e6, UTC).isoformat().encode()
    loads = []
    for item in items:
        if item.error is None:
            plan.by_table.setdefault(call.table(table_name(item.index, "documents")), []).append(item)
    for table, own in plan.by_table.items():
        lines = b"\n".join(_line(item, now) for item in own)
        loads.append(Load(table, lines, len(own)))
    is_once = all(item.time is not None or item.has_id for item in items)
    return Work(loads, partial(answer, plan), is_once=is_once)


def _items(call: Call) -> Iterator[_Item]:
    default, prefix = call.path.get("index", ""), uuid.uuid4().hex[:12]
    lines = iter(call.body.split(b"\n"))
    known: dict[bytes, tuple[str, dict[str, Any]]] = {}  # most actions are alike
    for at, line in enumerate(lines):
        if not line.strip():
            continue
        found = known.get(line)
        if found is None:
            found = known[line] = _action(line, at + 1)
        action, told = found
        id_ = told.get("_id")
        item = _Item(
            action, str(told.get("_index") or default), _new_id(at, prefix) if id_ is None else str(id_),
            has_id=id_ is not None,
        )  # fmt: skip
        if action != "delete":
            item.document = next(lines, b"").strip()
        if action in ("delete", "update"):
            item.error = (400, "illegal_argument_exception", f"{action} is not supported: rows are appended")
        elif not item.index:
            item.error = (400, "action_request_validation_exception", "index is missing")
        yield item


def _action(line: bytes, number: int) -> tuple[str, dict[str, Any]]:
    try:
        ((action, told),) = orjson.loads(line).items()
        if action in _KNOWN and isinstance(told, dict):
            return action, told
    except (ValueError, AttributeError):
        pass
    raise InvalidInputError("Malformed action/metadata line: expected an action and its index", line=number)


def _new_id(at: int, prefix: str | None = None) -> str:
    return f"{prefix or uuid.uuid4().hex[:12]}{at:08x}"


def _read(item: _Item) -> None:
    """Look at a document: an object, and which time it says."""
    if item.error is not None:
        return
    try:
        value = orjson.loads(item.document)
    except ValueError as error:
        item.error = (400, "document_parsing_exception", f"failed to parse: {error}")
        return
    if not isinstance(value, dict):
        item.error = (400, "document_parsing_exception", "a document is an object")
        return
    item.time = value.get(TIME)
    if b"\n" in item.document or b"\r" in item.document:  # one document may be on several lines
        item.document = orjson.dumps(value)


def _check_times(items: Sequence[_Item]) -> None:
    """Refuse documents whose time cannot be read, each alone."""
    for item, time in zip(items, times_of_texts(pa.array([item.time for item in items], pa.string())), strict=True):
        if time == NO_TIME:
            item.error = (400, "document_parsing_exception", f"failed to parse field [{TIME}]: {item.time[:80]!r}")


def _line(item: _Item, now: bytes) -> bytes:
    """Return a document as a row: with a time, and its id if it was given one."""
    rest = item.document[1:].lstrip()
    added = []
    if item.time is None:
        added.append(b'"%s":"%s"' % (TIME.encode(), now))
    if item.has_id:
        added.append(b'"_id":' + orjson.dumps(item.id))
    if not added:
        return item.document
    comma = b"" if rest.startswith(b"}") else b","
    return b"{" + b",".join(added) + comma + rest


def _settle(plan: _Plan, outcomes: Sequence[Outcome]) -> None:
    """Note for each document what became of its table's load; raise if nothing went in and all may be sent again."""
    failures = [failure_of(each) if isinstance(each, TidelakeError) else None for each in outcomes]
    if outcomes and all(each is not None and each.is_temporary for each in failures):
        raise next(each for each in outcomes if isinstance(each, TidelakeError))
    for items, failure in zip(plan.by_table.values(), failures, strict=True):
        if failure is None:
            continue
        status = 429 if failure.is_temporary else failure.status  # of single documents, clients send 429 again
        for item in items:
            item.error = (status, _type_of(status), failure.message)


def _bulk_answer(plan: _Plan, outcomes: Sequence[Outcome]) -> Answer:
    _settle(plan, outcomes)
    has_errors = any(item.error is not None for item in plan.items)
    return _told({"took": 0, "errors": has_errors, "items": [{item.action: _shown(item)} for item in plan.items]}, 200)


def _document_answer(plan: _Plan, outcomes: Sequence[Outcome]) -> Answer:
    _settle(plan, outcomes)
    (item,) = plan.items
    if item.error is None:
        return _told(_shown(item), 201)
    status, kind, reason = item.error
    cause = {"type": kind, "reason": reason}
    return _told({"error": {"root_cause": [cause], **cause}, "status": status}, status)


def _shown(item: _Item) -> dict[str, Any]:
    named = {"_index": item.index, "_id": item.id}
    if item.error is not None:
        status, kind, reason = item.error
        return {**named, "status": status, "error": {"type": kind, "reason": reason}}
    shards = {"total": 1, "successful": 1, "failed": 0}
    done = {"_version": 1, "result": "created", "_shards": shards, "_seq_no": 0, "_primary_term": 1, "status": 201}
    return {**named, **done}


def _type_of(status: int) -> str:
    return {
        401: "security_exception",
        403: "security_exception",
        404: "index_not_found_exception",
        413: "content_too_long_exception",
        429: "es_rejected_execution_exception",
        503: "unavailable_shards_exception",
    }.get(status, "illegal_argument_exception")


def _told(value: Any, status: int, **headers: str) -> Answer:
    return Answer(status, orjson.dumps(value), "application/json", {**PRODUCT, **headers})


def _always(value: Any) -> Callable[[Call], Work]:
    """Return a decoder for what is asked before anything is sent, which has one answer."""
    return lambda call: Work([], lambda outcomes: _told(value, 200))


_NODE = {"name": CLUSTER, "version": VERSION, "roles": ["data", "ingest", "master"], "http": {}}
_INFO = {
    "name": CLUSTER,
    "cluster_name": CLUSTER,
    "cluster_uuid": "tidelake-tidelake-0000",
    "version": {
        "number": VERSION,
        "build_flavor": "default",
        "build_type": "tar",
        "lucene_version": "10.2.2",
        "minimum_wire_compatibility_version": "8.18.0",
        "minimum_index_compatibility_version": "8.0.0",
    },
    "tagline": "You Know, for Search",
}
_LICENSE = {"license": {"status": "active", "uid": CLUSTER, "type": "basic", "mode": "basic"}}
_HEALTH = {"cluster_name": CLUSTER, "status": "green", "timed_out": False, "number_of_nodes": 1}
_NODES = {"cluster_name": CLUSTER, "_nodes": {"total": 1, "successful": 1, "failed": 0}, "nodes": {CLUSTER: _NODE}}
_XPACK = {"features": {"ilm": {"available": True, "enabled": True}}, "license": _LICENSE["license"]}
_DONE = {"acknowledged": True}
_ASK, _SET = ("GET", "HEAD"), ("PUT", "POST")


def _probes() -> Iterator[Route]:
    for path, value in {
        "/": _INFO,
        "/_license": _LICENSE,
        "/_xpack": _XPACK,
        "/_cluster/health": _HEALTH,
        "/_nodes": _NODES,
        "/_nodes/http": _NODES,
        "/_nodes/_all/http": _NODES,
        "/_nodes/_local": _NODES,
    }.items():
        yield Route(path, _always(value), _ASK, refuse=refuse)
    for kind in ("_ilm/policy", "_index_template", "_component_template", "_template", "_ingest/pipeline"):
        yield Route(f"/{kind}/{{name}}", _always({}), _ASK, refuse=refuse)
        yield Route(f"/{kind}/{{name}}", _always(_DONE), _SET, refuse=refuse)
    for path in ("/_data_stream/{name}", "/_alias/{name}"):
        yield Route(path, _always({}), (*_ASK, *_SET), refuse=refuse)


ROUTES = (
    Route("/_bulk", decode_bulk, _SET, refuse=refuse, errors_first=False),
    Route("/{index}/_bulk", decode_bulk, _SET, refuse=refuse, errors_first=False),
    Route("/{index}/_doc", decode_document, _SET, refuse=refuse, errors_first=False),
    Route("/{index}/_doc/{id}", decode_document, _SET, refuse=refuse, errors_first=False),
    Route("/{index}/_create/{id}", decode_document, _SET, refuse=refuse, errors_first=False),
    *_probes(),
)
