"""Take rows in the formats of Kusto's streaming ingestion: JSON, and text separated by commas, tabs and others.

Text has no head: its fields are the table's columns, in their order. Rows go the way of all rows, and are acknowledged
when they are durable. It does not make tables: ``.create table`` does.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import InvalidInputError, TidelakeError
from tidelake.model.schema import JSON_FIELD, Schema
from tidelake.query.json_rows import column_texts
from tidelake.server.call import Call, Load, Work
from tidelake.server.doors.base import Asked
from tidelake.server.protocols.rows import columnar, count_lines, csv_batches, json_lines, parquet_batches
from tidelake.server.refusals import Unsupported
from tidelake.write.append import AppendReport

DELIMITERS = {"csv": ",", "tsv": "\t", "tsve": "\t", "psv": "|", "scsv": ";", "sohsv": "\x01"}
_JSON = r"(?s)^\s*(?:[{\[].*[}\]]|-?[0-9]+(?:\.[0-9]+)?|true|false|null|\".*\")\s*$"
JSONS = ("json", "multijson", "singlejson")


async def ingested(
    asked: Asked, table: str, form: str, body: bytes, *, key: str | None, options: Mapping[str, str] | None = None
) -> int:
    """Append rows to a table that is there, and return how many they were; NotFoundError if it is not."""
    asked.grant.check("write", table)
    schema = await asked.questions.looked(asked.grant, lambda: asked.table(table).schema)
    skips_first = (options or {}).get("ignorefirstrecord", "").lower() == "true"

    def decode(call: Call) -> Work:
        return Work([_load(table, form, call.body, schema, skips_first)], lambda outcomes: NotImplemented)

    [outcome] = await asked.stage(body, decode, key)
    if isinstance(outcome, TidelakeError):
        raise outcome
    assert isinstance(outcome, AppendReport)
    return outcome.rows


def _load(table: str, form: str, body: bytes, schema: Schema, skips_first: bool) -> Load:
    if form in JSONS:
        lines = json_lines(body)
        return Load(table, lines, count_lines(lines))
    if form == "parquet":
        return columnar(table, parquet_batches(body))
    if form in DELIMITERS:
        text = _with_head(body, DELIMITERS[form], schema.names, skips_first)
        return columnar(table, (_marked(batch, schema) for batch in csv_batches(text, DELIMITERS[form])))
    known = ", ".join([*JSONS, *DELIMITERS, "parquet"])
    raise Unsupported("rows of this format are not known", format=form[:40], known=known)


def _marked(batch: pa.RecordBatch, schema: Schema) -> pa.RecordBatch:
    """Say of the texts of dynamic columns that they are JSON; one that does not look like it is a text in JSON."""
    for at, field in enumerate(batch.schema):
        if not pa.types.is_string(field.type) or field.name not in schema or schema[field.name].type.kind != "dynamic":
            continue
        texts = batch.column(at)
        is_json = pc.match_substring_regex(texts, _JSON)
        known = pc.if_else(is_json, texts, column_texts(field, texts))
        held = pc.if_else(pc.equal(pc.utf8_trim_whitespace(texts), ""), pa.scalar(None, pa.utf8()), known)
        batch = batch.set_column(at, field.with_metadata(JSON_FIELD), held)
    return batch


def _with_head(body: bytes, delimiter: str, names: tuple[str, ...], skips_first: bool) -> bytes:
    """Return text with a head that names its fields."""
    if skips_first:
        body = body.partition(b"\n")[2]
    if not body.strip():
        raise InvalidInputError("there are no rows", kind="no_rows")
    first = body.partition(b"\n")[0].decode(errors="replace")
    fields = len(next(csv.reader(io.StringIO(first), delimiter=delimiter), []))
    if fields > len(names):
        raise InvalidInputError("a row has more fields than the table has columns", fields=fields, kind="bad_body")
    head = io.StringIO()
    csv.writer(head, delimiter=delimiter, lineterminator="\n").writerow(names[:fields])
    return head.getvalue().encode() + body
