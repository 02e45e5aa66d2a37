"""Ask in SQL or KQL: ``POST /v1/query``, and what there is to ask about: ``/v1/tables``, ``/v1/explain``.

::

    {"sql": "select …"}  or  {"kql": "obs.logs | …"}
    "format": json | ndjson | csv | arrow | parquet, or the Accept header
    "parameters": [5, "a"], for the places of SQL, each a ?
    "budget": {"seconds": 5, "memory": "500MB", "read": "2GB"}

A question may also be the body as text, with ``?language=kql``. Rows are streamed. It does not write.
"""

from __future__ import annotations

from typing import Any, cast

import orjson

from tidelake.errors import InvalidInputError, NotFoundError
from tidelake.model.settings import TableSettings
from tidelake.query.parameters import with_values
from tidelake.query.session import Language
from tidelake.query.writing import FORMATS, write_rows
from tidelake.server.call import JSON, Answer
from tidelake.server.doors.base import FORM, Asked, Door, Streamed
from tidelake.server.questions import in_format
from tidelake.server.refusals import Unsupported

TYPES = {
    "json": JSON,
    "ndjson": "application/x-ndjson",
    "csv": "text/csv; charset=utf-8",
    "arrow": "application/vnd.apache.arrow.stream",
    "parquet": "application/vnd.apache.parquet",
}
LANGUAGES = ("sql", "kql")

_BY_TYPE = {kind.partition(";")[0]: form for form, kind in TYPES.items()}
_KNOWN = frozenset({"sql", "kql", "format", "budget", "parameters"})


async def answer_query(asked: Asked) -> Streamed:
    """Answer with the rows of a question."""
    text, language, told = question_of(asked)
    form = told.get("format") or asked.call.query.get("format") or _accepted(asked.call.headers.get("accept", ""))
    if form not in FORMATS:
        raise InvalidInputError("no such format", format=str(form)[:40], known=", ".join(FORMATS), kind="bad_format")
    question = asked.question(text, language, told.get("budget"))
    return Streamed(asked.questions.answered(question, in_format(form, write_rows)), TYPES[form])


async def answer_explain(asked: Asked) -> Answer:
    """Answer with what a question would read, without reading it."""
    text, language, told = question_of(asked)
    found = await asked.questions.whole(
        asked.question(text, language, told.get("budget")),
        lambda result: {"columns": list(result.columns), "plan": result.explain(), "warnings": list(result.warnings)},
    )
    return Answer.json(found)


async def answer_tables(asked: Asked) -> Answer:
    """Answer with the tables that the token reaches."""
    return Answer.json({"tables": [name for name in asked.lake.tables() if asked.may_see(name)]})


async def answer_table(asked: Asked) -> Answer:
    """Answer with a table's columns, its settings and how much it holds."""
    name = asked.call.table(asked.call.path["table"])
    if not asked.may_see(name):
        raise NotFoundError("no such table", table=name, kind="no_table")
    table = asked.lake.table(name, user=asked.user) if asked.user else asked.lake.table(name)
    snapshot = table.handle.snapshot
    return Answer.json(
        {
            "table": name,
            "columns": [{"name": column.name, "type": str(column.type)} for column in snapshot.schema],
            "time": TableSettings.of(snapshot.settings).time,
            "rows": snapshot.totals.rows + snapshot.totals.hot_rows,
            "extents": snapshot.totals.extents,
            "bytes": snapshot.totals.bytes + snapshot.totals.hot_bytes,
            "snapshot": snapshot.sequence,
        }
    )


def question_of(asked: Asked) -> tuple[str, Language, dict[str, Any]]:
    """Return the text of a question, its language, and what else was told."""
    call = asked.call
    told: dict[str, Any] = dict(call.query)
    is_object = call.body.lstrip()[:1] == b"{"  # which curl sends as a form, unless it is told otherwise
    if call.body and (call.content_type == "application/json" or (is_object and call.content_type in ("", FORM))):
        told = _object(call.body)
        if unknown := sorted(set(told) - _KNOWN):
            raise InvalidInputError(
                "a question has sql or kql, parameters, format and budget", unknown=unknown[0][:40], kind="bad_body"
            )
    elif call.content_type == FORM:
        told = dict(asked.pairs)
    elif call.body:
        language = call.query.get("language", "sql")
        told = {language: _text(call.body)}
    found = [language for language in LANGUAGES if told.get(language)]
    if len(found) != 1 or not isinstance(told[found[0]], str):
        raise InvalidInputError("a question is sql or kql, as text", kind="no_question")
    text, values = told[found[0]], told.get("parameters")
    if values is not None:
        if found[0] != "sql" or not isinstance(values, list):
            raise InvalidInputError("parameters are a list, for SQL", kind="bad_parameters")
        text = with_values(text, values)
    return text, cast(Language, found[0]), told


def _object(body: bytes) -> dict[str, Any]:
    try:
        told = orjson.loads(body)
    except ValueError as error:
        raise InvalidInputError("the body is not JSON", reason=error, kind="bad_body") from error
    if not isinstance(told, dict):
        raise InvalidInputError("the body is an object", kind="bad_body")
    return told


def _text(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise InvalidInputError("the body is not UTF-8", kind="bad_body") from error


def _accepted(accept: str) -> str:
    kinds = [part.partition(";")[0].strip().lower() for part in accept.split(",") if part.strip()]
    for kind in kinds:
        if kind in _BY_TYPE:
            return _BY_TYPE[kind]
    if not kinds or "*/*" in kinds or "application/*" in kinds:
        return "json"
    raise Unsupported("rows in this form are not known", accept=accept[:80], known=", ".join(_BY_TYPE))


DOORS = (
    Door("/v1/query", answer_query, ("POST", "GET")),
    Door("/v1/explain", answer_explain, ("POST", "GET")),
    Door("/v1/tables", answer_tables, ("GET",)),
    Door("/v1/tables/{table}", answer_table, ("GET",)),
)
