"""Ask in SQL or KQL: ``POST /v1/query``, and what that would read: ``/v1/explain``.

::

    {"sql": "select …"}  or  {"kql": "obs.logs | …"}  or  {"query": "…", "language": "kql"}
    "format": json | ndjson | csv | arrow | parquet, or the Accept header
    "parameters": [5, "a"], for the places of SQL, each a ?; or {"least": 5}, for those that KQL declares
    "start", "end": only rows of this range, by each table's time column
    "as_of": a time, or "snapshot": a number, or one for each table by its name
    "budget": {"seconds": 5, "memory": "500MB", "read": "2GB"}

A question may also be the body as text, with ``?language=kql``. Rows are streamed. It does not write.
"""

from __future__ import annotations

from typing import Any, cast

import orjson

from tidelake.errors import InvalidInputError, InvalidRangeError
from tidelake.model.times import parse_time_ns, time_text
from tidelake.query.parameters import with_values
from tidelake.query.result import Result
from tidelake.query.seen import View
from tidelake.query.session import Language
from tidelake.query.writing import FORMATS, write_rows
from tidelake.server.call import JSON, Answer
from tidelake.server.doors.base import FORM, About, Asked, Door, Streamed
from tidelake.server.doors.kql_parameters import with_parameters
from tidelake.server.question import Question
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
ASKED = {
    "sql": "a question in SQL",
    "kql": "or one in KQL",
    "query": "or one in the language that is named",
    "language": "sql or kql",
    "format": "json, ndjson, csv, arrow or parquet",
    "parameters": "values for the places of SQL, or for parameters that KQL declares, by their names",
    "start": "only rows from this time on",
    "end": "only rows before this time",
    "as_of": "tables as they were at this time",
    "snapshot": "the table as it was in this snapshot, or one for each table by its name",
    "budget": "seconds, memory, read",
}
_KNOWN = frozenset(ASKED)


async def answer_query(asked: Asked) -> Answer | Streamed:
    """Answer with the rows of a question."""
    question, told = question_of(asked)
    form = told.get("format") or asked.call.query.get("format") or _accepted(asked.call.headers.get("accept", ""))
    if form not in FORMATS:
        raise InvalidInputError("no such format", format=str(form)[:40], known=", ".join(FORMATS), kind="bad_format")
    told_with = {"x-tidelake-query": question.id}
    return await asked.rows(question, form, in_format(form, write_rows), TYPES[form], told_with)


async def answer_explain(asked: Asked) -> Answer:
    """Answer with what a question would read, without reading it."""
    question, _ = question_of(asked)
    told = await asked.questions.whole(question, _explained)
    kept = [form for form in FORMATS if await asked.questions.kept_answer(question, form, count=False) is not None]
    if kept:
        told["text"] = f"the answer is kept as {', '.join(kept)}: nothing is read\n\n{told['text']}"
    return Answer.json({**told, "kept": kept})


def _explained(result: Result) -> dict[str, Any]:
    scans = []
    for plan in result.plans:
        told = plan.to_json()
        scans.append({**told, "bytes": told["stages"][-1]["bytes"], "rows": told["stages"][-1]["rows"]})
    return {
        "text": result.explain(),
        "engine": result.engine,
        "columns": list(result.columns),
        "scans": scans,
        "bytes": result.read_bytes,
        "warnings": list(result.warnings),
    }


def question_of(asked: Asked) -> tuple[Question, dict[str, Any]]:
    """Return a question, and all that was told."""
    text, language, told = _told_of(asked)
    if (values := told.get("parameters")) is not None:
        text = _with_parameters(text, language, values)
    return asked.question(text, language, told.get("budget"), view=_view(told, asked)), told


def _with_parameters(text: str, language: Language, values: Any) -> str:
    if language == "sql" and isinstance(values, list):
        return with_values(text, values)
    if language == "kql" and isinstance(values, dict):
        return with_parameters(text, values)
    raise InvalidInputError("parameters are a list for SQL, and an object for KQL", kind="bad_parameters")


def _view(told: dict[str, Any], asked: Asked) -> View:
    """Return which states and which times of tables are meant."""
    as_of, snapshot = told.get("as_of"), told.get("snapshot")
    if as_of is not None and snapshot is not None:
        raise InvalidInputError("give as_of or snapshot, not both", kind="bad_snapshot")
    if isinstance(snapshot, str) and snapshot.isdigit():
        snapshot = int(snapshot[:18])
    snapshots: dict[str, int] = {}
    if isinstance(snapshot, dict):
        snapshots = {asked.call.table(str(name)): number for name, number in snapshot.items()}
    elif snapshot is not None:
        snapshots = {"": snapshot}
    if not all(type(number) is int and 0 < number < 2**62 for number in snapshots.values()):
        raise InvalidInputError("a snapshot is a number, or one for each table", kind="bad_snapshot")
    start, end = (None if told.get(name) is None else parse_time_ns(told[name]) for name in ("start", "end"))
    if start is not None and end is not None and start >= end:
        raise InvalidRangeError("the range's start is not before its end", start=told["start"], end=told["end"])
    if as_of is not None:
        as_of = time_text(parse_time_ns(as_of))
    return View(as_of, snapshots, start, end)


def _told_of(asked: Asked) -> tuple[str, Language, dict[str, Any]]:
    """Return the text of a question, its language, and what else was told."""
    call = asked.call
    told: dict[str, Any] = dict(call.query)
    is_object = call.body.lstrip()[:1] == b"{"  # which curl sends as a form, unless it is told otherwise
    if call.body and (call.content_type == "application/json" or (is_object and call.content_type in ("", FORM))):
        told = _object(call.body)
        if unknown := sorted(set(told) - _KNOWN):
            raise InvalidInputError(
                "a question has no such member", unknown=unknown[0][:40], known=", ".join(ASKED), kind="bad_body"
            )
    elif call.content_type == FORM:
        told = dict(asked.pairs)
    elif call.body:
        language = call.query.get("language", "sql")
        told = {**told, "query": _text(call.body), "language": language}
    if told.get("query"):
        told = {**told, str(told.get("language") or "sql"): told["query"]}
    found = [language for language in LANGUAGES if told.get(language)]
    if len(found) != 1 or not isinstance(told[found[0]], str):
        raise InvalidInputError("a question is sql or kql, as text", kind="no_question")
    return told[found[0]], cast(Language, found[0]), told


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


_QUERY = {name: said for name, said in ASKED.items() if name not in ("parameters", "budget")}

DOORS = (
    Door("/v1/query", answer_query, ("POST", "GET"), about=About("The rows of a question.", _QUERY, ASKED)),
    Door(
        "/v1/explain",
        answer_explain,
        ("POST", "GET"),
        about=About("What a question would read, without reading it.", _QUERY, ASKED),
    ),
)
