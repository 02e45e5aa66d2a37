"""Answer the API of Kusto, so that its SDK, its magic for notebooks and its dashboards can ask in KQL.

``/v2/rest/query`` answers in frames, ``/v1/rest/query`` and ``/v1/rest/mgmt`` in tables; ``/v1/rest/ingest`` takes
rows. A database is a namespace. Parameters of a query are given to the text's own declaration of them. It does not know
what commands there are: see ``kusto_commands``.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import InvalidInputError
from tidelake.model.schema import DYNAMIC_FIELD, JSON_FIELD
from tidelake.query.json_rows import column_texts, is_marked
from tidelake.query.result import Result
from tidelake.server.call import JSON, Answer, Call
from tidelake.server.doors.base import Asked, Door, Streamed
from tidelake.server.doors.kql_parameters import with_parameters
from tidelake.server.doors.kusto_commands import NAMES, commanded
from tidelake.server.doors.kusto_rows import ingested
from tidelake.server.question import Question
from tidelake.server.questions import Pipe
from tidelake.server.refusals import Failure

PIECE_ROWS = 16_384  # that are written at a time
UNNAMED = "NetDefaultDB"  # what clients say who name no database


async def answer_second(asked: Asked) -> Answer | Streamed:
    """Answer a query in frames."""
    return await asked.rows(_question_of(asked), "kusto v2", _write_frames, JSON, _told(asked.call))


async def answer_first(asked: Asked) -> Answer | Streamed:
    """Answer a query, or a command, in tables."""
    text = _told_of(asked)["csl"]
    if str(text).lstrip().startswith("."):
        return await answer_command(asked)
    return await asked.rows(_question_of(asked), "kusto v1", _write_tables, JSON, _told(asked.call))


async def answer_command(asked: Asked) -> Answer:
    """Answer a command."""
    told = _told_of(asked)
    columns, rows = await commanded(str(told["csl"]), asked, _namespace_of(told, asked))
    return _table(asked, columns, rows)


async def answer_ingest(asked: Asked) -> Answer:
    """Append rows to a table."""
    call = asked.call
    database = call.path["database"]
    name = f"{call.namespace if database == UNNAMED else database}.{call.path['table']}"
    form = call.query.get("streamFormat", "csv").lower()
    if call.query.get("sourceKind"):
        raise InvalidInputError("rows are taken from the request alone", kind="bad_source")
    rows = await ingested(asked, name, form, call.body, key=_source_of(call))
    texts = ("UpdatePolicyStatus", "UpdatePolicyFailureCode", "UpdatePolicyFailureReason")
    columns = [("ConsumedRecordsCount", "long"), *((name, "string") for name in texts)]
    return _table(asked, columns, [[rows, "Inactive", "Unknown", None]])


async def answer_metadata(asked: Asked) -> Answer:
    """Answer that nobody signs in with a directory here: a token is a bearer, or there is none."""
    return Answer.json({"AzureAD": None, "dSTS": None})


def _source_of(call: Call) -> str | None:
    """Return the id under which a client sends the same rows again, if it has one: each try has another number."""
    found = re.fullmatch(r"[\w.]+;([0-9a-fA-F-]{36});\d+", call.headers.get("x-ms-client-request-id", ""))
    return None if found is None else f"kusto:{found[1].lower()}"


def _table(asked: Asked, columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[Any]]) -> Answer:
    told = [
        {"ColumnName": name, "DataType": NAMES[kind].partition(".")[2], "ColumnType": kind} for name, kind in columns
    ]
    table = {"TableName": "Table_0", "Columns": told, "Rows": rows}
    return Answer(200, orjson.dumps({"Tables": [table]}), JSON, _told(asked.call))


_CODES = {401: "Unauthorized", 403: "Forbidden", 409: "Cancelled", 413: "BadRequest", 503: "Throttled", 504: "Timeout"}
_LIMITS = ("memory_budget", "result_budget", "read_budget")


def refuse(call: Call, failure: Failure) -> Answer:
    """Tell a failure in Kusto's shape."""
    code = _CODES.get(failure.status, "BadRequest") if failure.kind not in _LIMITS else "LimitsExceeded"
    kind = {400: "Kusto.Data.Exceptions.KustoBadRequestException"}.get(
        failure.status, "Kusto.Data.Exceptions.KustoServiceException"
    )
    told = {
        "code": f"{code}: {failure.kind}",
        "message": failure.message,
        "@type": kind,
        "@message": failure.message,
        "@context": {"timestamp": "", "serviceAlias": "tidelake", "clientRequestId": _request_id(call)},
        "@permanent": failure.status != 503,
    }
    status = 400 if failure.status in (404, 409) else failure.status
    return Answer(status, orjson.dumps({"error": told}), JSON, {**_told(call), **failure.headers})


def _told(call: Call) -> dict[str, str]:
    return {"x-ms-client-request-id": _request_id(call), "x-ms-activity-id": str(uuid.uuid4())}


def _request_id(call: Call) -> str:
    told = call.headers.get("x-ms-client-request-id", "")
    return told if told.isprintable() and told.isascii() and 0 < len(told) <= 200 else f"unspecified;{uuid.uuid4()}"


def _told_of(asked: Asked) -> dict[str, Any]:
    if asked.call.method == "GET":
        return {"csl": asked.call.query.get("csl", ""), "db": asked.call.query.get("db", "")}
    try:
        told = orjson.loads(asked.call.body)
        if isinstance(told, dict) and isinstance(told.get("csl"), str) and told["csl"].strip():
            return told
    except ValueError:
        pass
    raise InvalidInputError("the body is an object with db and csl, a text", kind="bad_body")


def _question_of(asked: Asked) -> Question:
    """Return a query with its parameters given, about the tables of its database."""
    told = _told_of(asked)
    properties = told.get("properties") or {}
    try:
        properties = orjson.loads(properties) if isinstance(properties, str) else properties
        options, given = properties.get("Options") or {}, properties.get("Parameters") or {}
    except (ValueError, AttributeError) as error:
        raise InvalidInputError("the properties are no object", kind="bad_body") from error
    seconds = _seconds(options.get("servertimeout"))
    budget = {"seconds": seconds} if seconds else {}
    return asked.question(with_parameters(told["csl"], given), "kql", budget, namespace=_namespace_of(told, asked))


def _namespace_of(told: dict[str, Any], asked: Asked) -> str:
    named = str(told.get("db") or "")
    return asked.call.namespace if named in ("", UNNAMED) else named


def _seconds(text: Any) -> float | None:
    found = re.fullmatch(r"(?:(\d+)\.)?(\d+):(\d+):(\d+(?:\.\d+)?)", str(text or ""))
    if found is None:
        return None
    days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def _columns_of(schema: pa.Schema, result: Result) -> list[dict[str, str]]:
    kinds = {name: kind for name, kind in result.kinds.items() if kind in NAMES}
    return [{"ColumnName": each.name, "ColumnType": kinds.get(each.name) or kind_of(each)} for each in schema]


def kind_of(field: pa.Field) -> str:
    """Return the name that Kusto has for the type of a column."""
    if is_marked(field, DYNAMIC_FIELD) or is_marked(field, JSON_FIELD) or isinstance(field.type, pa.JsonType):
        return "dynamic"
    for test, name in (
        (pa.types.is_boolean, "bool"),
        (pa.types.is_int64, "long"),
        (pa.types.is_integer, "int"),
        (pa.types.is_floating, "real"),
        (pa.types.is_decimal, "decimal"),
        (pa.types.is_timestamp, "datetime"),
        (pa.types.is_date, "datetime"),
        (pa.types.is_duration, "timespan"),
        (pa.types.is_interval, "timespan"),
        (pa.types.is_nested, "dynamic"),
    ):
        if test(field.type):
            return name
    return "string"


def _row_pieces(batches: Iterator[pa.RecordBatch]) -> Iterator[bytes]:
    """Yield rows as JSON lists with commas between them, whole columns at a time."""
    is_first = True
    for batch in batches:
        for start in range(0, batch.num_rows, PIECE_ROWS):
            piece = batch.slice(start, PIECE_ROWS)
            columns = [_texts(field, column) for field, column in zip(piece.schema, piece.columns, strict=True)]
            values = [column.cast(pa.large_string()) for column in columns]
            rows = pc.binary_join_element_wise(*values, _large(",")) if values else pa.array([""] * piece.num_rows)
            rows = pc.binary_join_element_wise(_large("["), rows.cast(pa.large_string()), _large("]"), _large(""))
            all_rows = pa.LargeListArray.from_arrays(pa.array([0, len(rows)], pa.int64()), rows)
            yield (b"" if is_first else b",") + pc.binary_join(all_rows, _large(","))[0].as_py().encode()
            is_first = False


def _large(text: str) -> pa.Scalar:
    return pa.scalar(text, pa.large_string())


def _texts(field: pa.Field, column: pa.Array) -> pa.Array:
    """Return a column as JSON texts; reals that JSON lacks as texts, as Kusto has them."""
    texts = column_texts(field, column)
    if not pa.types.is_floating(field.type):
        return texts
    signs = pc.if_else(pc.less(column, 0), '"-Infinity"', '"Infinity"')
    odd = pc.if_else(pc.is_nan(column), '"NaN"', signs)
    is_odd = pc.fill_null(pc.invert(pc.is_finite(column)), False)
    return pc.if_else(is_odd, odd, texts)


def _write_frames(result: Result, pipe: Pipe) -> None:
    reader = result.to_reader()
    header = {"FrameType": "DataSetHeader", "IsProgressive": False, "Version": "v2.0"}
    properties = _frame(
        0, "QueryProperties", "@ExtendedProperties", [("TableId", "int"), ("Key", "string"), ("Value", "dynamic")]
    )
    properties["Rows"] = [[1, "Visualization", orjson.dumps({"Visualization": _render(result)}).decode()]]
    primary: dict[str, Any] = {"FrameType": "DataTable", "TableId": 1, "TableKind": "PrimaryResult"}
    primary |= {"TableName": "PrimaryResult", "Columns": _columns_of(reader.schema, result)}
    pipe.write(b"[" + orjson.dumps(header) + b"," + orjson.dumps(properties) + b",")
    pipe.write(orjson.dumps(primary)[:-1] + b',"Rows":[')
    for piece in _row_pieces(iter(reader)):
        pipe.write(piece)
    done = _frame(2, "QueryCompletionInformation", "QueryCompletionInformation", _COMPLETION)
    done["Rows"] = [["", "", 0, "OK"]]
    end = {"FrameType": "DataSetCompletion", "HasErrors": False, "Cancelled": False}
    pipe.write(b"]}," + orjson.dumps(done) + b"," + orjson.dumps(end) + b"]")


_COMPLETION = [("ClientRequestId", "string"), ("ActivityId", "string"), ("Level", "int"), ("StatusCodeName", "string")]


def _frame(id_: int, kind: str, name: str, columns: Sequence[tuple[str, str]]) -> dict[str, Any]:
    told = [{"ColumnName": each, "ColumnType": of} for each, of in columns]
    return {"FrameType": "DataTable", "TableId": id_, "TableKind": kind, "TableName": name, "Columns": told, "Rows": []}


def _render(result: Result) -> str | None:
    return None if result.render is None else result.render.kind


def _write_tables(result: Result, pipe: Pipe) -> None:
    reader = result.to_reader()
    columns = [
        {**each, "DataType": NAMES[each["ColumnType"]].partition(".")[2]} for each in _columns_of(reader.schema, result)
    ]
    pipe.write(b'{"Tables":[{"TableName":"Table_0","Columns":' + orjson.dumps(columns) + b',"Rows":[')
    for piece in _row_pieces(iter(reader)):
        pipe.write(piece)
    pipe.write(b"]}]}")


DOORS = (
    Door("/v2/rest/query", answer_second, ("POST", "GET"), refuse=refuse),
    Door("/v1/rest/query", answer_first, ("POST", "GET"), refuse=refuse),
    Door("/v1/rest/mgmt", answer_command, refuse=refuse),
    Door("/v1/rest/ingest/{database}/{table}", answer_ingest, role="write", refuse=refuse, takes_rows=True),
    Door("/v1/rest/auth/metadata", answer_metadata, ("GET",), role="", refuse=refuse),
)
