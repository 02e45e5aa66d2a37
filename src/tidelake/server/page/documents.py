"""Keep documents in the lake: saved questions and dashboards, every revision of each.

A document has a kind, a name and a body, which is JSON. All of a namespace are rows of one table of it,
``page_documents``, made when the first is saved: it has snapshots, retention and upkeep as every table, and a token
reaches the documents of the namespaces it reaches. A save appends a row with the next revision under a key of its own,
so that of two who save over the same revision one is told to look again. A deletion is a revision without a body::

    at timestamp · kind string · name string · revision long · by string · body dynamic

It does not know what a body means.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import orjson

from tidelake.errors import AlreadyExistsError, InvalidInputError, NotFoundError
from tidelake.lake import Lake
from tidelake.query.json_rows import json_value
from tidelake.server.call import Answer
from tidelake.server.doors.base import About, Asked, Door
from tidelake.server.refusals import Forbidden
from tidelake.table import Table

TABLE = "page_documents"
KINDS = ("question", "dashboard")
MAX_NAME = 120
MAX_BODY_BYTES = 256 << 10
MAX_LISTED = 1_000
SHAPE = {
    "at": "timestamp",
    "kind": "string",
    "name": "string",
    "revision": "long",
    "by": "string",
    "body": "dynamic",
}


async def answer_list(asked: Asked) -> Answer:
    """Answer with the newest revision of every document of a kind."""
    kind = _kind(asked)
    rows = await _looked(asked, kind)
    newest: dict[str, dict[str, Any]] = {}
    for row in rows:
        if row["name"] not in newest or newest[row["name"]]["revision"] < row["revision"]:
            newest[row["name"]] = row
    kept = sorted((row for row in newest.values() if row["body"] is not None), key=lambda row: str(row["name"]))
    return Answer.json({"documents": kept[:MAX_LISTED]})


async def answer_read(asked: Asked) -> Answer:
    """Answer with the newest revision of a document."""
    found = (await _looked(asked, _kind(asked), _name(asked)))[-1:]
    if not found or found[0]["body"] is None:
        raise NotFoundError("no such document", name=_name(asked), kind="no_document")
    return Answer.json(found[0])


async def answer_revisions(asked: Asked) -> Answer:
    """Answer with every revision of a document, the newest first."""
    return Answer.json({"revisions": (await _looked(asked, _kind(asked), _name(asked)))[::-1]})


async def answer_save(asked: Asked) -> Answer:
    """Save the next revision of a document; AlreadyExistsError if another has saved meanwhile."""
    return await _saved(asked, with_body=True)


async def answer_delete(asked: Asked) -> Answer:
    """Delete a document, which is a revision too: those before it can still be read."""
    return await _saved(asked, with_body=False)


async def _saved(asked: Asked, *, with_body: bool) -> Answer:
    _check_own_page(asked)
    kind, name, told = _kind(asked), _name(asked), _told(asked.call.body)
    body, before = told.get("body"), told.get("revision", 0)
    if with_body and not isinstance(body, dict):
        raise InvalidInputError("a document's body is an object", kind="bad_body")
    if type(before) is not int or not 0 <= before < 2**53:
        raise InvalidInputError("a revision is a number: the one that is saved over, 0 for none", kind="bad_body")
    full = asked.call.table(TABLE)
    asked.grant.check("write", full)
    row = {
        "at": datetime.now(UTC),
        "kind": kind,
        "name": name,
        "revision": before + 1,
        "by": asked.grant.name,
        "body": body if with_body else None,
    }

    def save() -> dict[str, Any]:
        table = _table(asked.lake, full)
        known = _rows(table, kind, name)
        newest = known[-1]["revision"] if known else 0
        if newest != before and not (newest and before == 0 and known[-1]["body"] is None):
            raise _saved_meanwhile(name, newest)
        row["revision"] = newest + 1
        report = table.append([row], key=orjson.dumps([kind, name, newest + 1]).decode())
        if report.replayed:
            raise _saved_meanwhile(name, newest + 1)
        return {"kind": kind, "name": name, "revision": newest + 1, "snapshot": report.snapshot}

    return Answer.json(await asked.questions.looked(asked.grant, save))


def _saved_meanwhile(name: str, newest: int) -> AlreadyExistsError:
    return AlreadyExistsError(
        "the document was saved meanwhile: look at it again", name=name, newest=newest, kind="saved_meanwhile"
    )


def _table(lake: Lake, name: str) -> Table:
    try:
        return lake.table(name)
    except NotFoundError:
        pass
    try:
        return lake.create_table(name, SHAPE, time="at")
    except AlreadyExistsError:
        return lake.table(name)


async def _looked(asked: Asked, kind: str, name: str | None = None) -> list[dict[str, Any]]:
    """Return the revisions of documents, the oldest first; none where nothing was saved, or can be seen."""
    full = asked.call.table(TABLE)
    if not asked.may_see(full):
        return []

    def look() -> list[dict[str, Any]]:
        try:
            table = asked.lake.table(full)
        except NotFoundError:
            return []
        return [{**row, "at": json_value(row["at"])} for row in _rows(table, kind, name)]

    return list(await asked.questions.looked(asked.grant, look))


def _rows(table: Table, kind: str, name: str | None = None) -> list[dict[str, Any]]:
    if set(SHAPE) - set(table.schema.names):
        raise NotFoundError("the table of documents is another's", table=table.name, kind="no_document")
    where = f"kind == {_text(kind)}" + ("" if name is None else f" and name == {_text(name)}")
    rows = table.scan(columns=list(SHAPE), where=where).read_all().to_pylist()
    return sorted(map(_read, rows), key=lambda row: int(row["revision"]))


def _read(row: dict[str, Any]) -> dict[str, Any]:
    body = row["body"]
    return {**row, "body": orjson.loads(body) if isinstance(body, str | bytes) else body}


def _text(value: str) -> str:
    return orjson.dumps(value).decode()


def _kind(asked: Asked) -> str:
    kind = asked.call.path["kind"]
    if kind not in KINDS:
        raise NotFoundError("no such kind of document", got=kind[:40], known=", ".join(KINDS), kind="no_document")
    return kind


def _name(asked: Asked) -> str:
    name = asked.call.path["name"]
    if not 0 < len(name) <= MAX_NAME or not name.isprintable() or name != name.strip():
        raise InvalidInputError(f"a name is up to {MAX_NAME} printable characters", kind="bad_name")
    return name


def _told(body: bytes) -> dict[str, Any]:
    if len(body) > MAX_BODY_BYTES:
        raise InvalidInputError("the document is too large", limit_bytes=MAX_BODY_BYTES, kind="too_large")
    try:
        told = orjson.loads(body or b"{}")
    except ValueError as error:
        raise InvalidInputError("the body is not JSON", kind="bad_body") from error
    if not isinstance(told, dict):
        raise InvalidInputError("the body is an object", kind="bad_body")
    return told


def _check_own_page(asked: Asked) -> None:
    """Refuse what another site has a browser send: where no token is asked for, nothing else would."""
    sites: Iterable[str] = ("same-origin", "none", "")
    if asked.call.headers.get("sec-fetch-site", "") not in sites or asked.call.content_type != "application/json":
        raise Forbidden("documents are saved by the page of this server, or by programs, as JSON")


_REVISION = {"revision": "the one that is saved over; 0 for none"}
_BODY = {"body": "the document, an object", **_REVISION}
_ONE = "/v1/documents/{kind}/{name}"

DOORS = (
    Door("/v1/documents/{kind}", answer_list, ("GET",), about=About("Documents of a kind, as they are now.")),
    Door(f"{_ONE}/revisions", answer_revisions, ("GET",), about=About("Every revision of a document.")),
    Door(_ONE, answer_read, ("GET",), about=About("A document, as it is now.")),
    Door(_ONE, answer_save, ("PUT",), role="write", about=About("Save the next revision of a document.", body=_BODY)),
    Door(
        _ONE,
        answer_delete,
        ("DELETE",),
        role="write",
        about=About("Delete a document; its revisions stay.", body=_REVISION),
    ),
)
