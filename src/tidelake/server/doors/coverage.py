"""Say what a table holds and what is missing: gaps, and how full each stretch of time is, for a heat map.

``entity`` names one entity, a value for each entity column, in their order, by as many parameters of that name. With
``resolution``, each entity has a row of fractions from 0 to 1; null is where nothing is expected. It does not read
rows, but for those of a table with a key.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tidelake.coverage.verbs import Series
from tidelake.errors import InvalidInputError
from tidelake.handle.table_handle import TableHandle
from tidelake.query.budget import Budget
from tidelake.query.json_rows import json_value
from tidelake.server.call import Answer
from tidelake.server.doors.base import About, Asked, Door

GAPS, MAX_GAPS = 1_000, 100_000
MAX_CELLS = 2_000
MAX_ENTITIES = 1_000


async def answer_coverage(asked: Asked) -> Answer:
    """Answer with how much of a range is held, and its gaps."""
    told = asked.call.query
    limit = asked.number("limit", GAPS, most=MAX_GAPS)
    cells = asked.number("resolution", 0, most=MAX_CELLS)
    entities = asked.number("entities", MAX_ENTITIES, least=1, most=MAX_ENTITIES)
    start, end, schedule = told.get("start"), told.get("end"), told.get("schedule")

    def look(budget: Budget | None = None) -> dict[str, Any]:
        table = asked.table(asked.call.path["table"]).pinned()
        entity = _entity(asked, table)
        series = Series(table, table.coverage_store)
        about = {"start": _bound(table, start), "end": _bound(table, end), "entity": entity, "schedule": schedule}
        report = series.report(**about, cells=cells or None)
        gaps = series.gaps(**about, least=_least(told.get("least", "1")))
        found: dict[str, Any] = {
            "table": table.name,
            "snapshot": report.snapshot,
            "bucket": report.bucket,
            "start": report.start,
            "end": report.end,
            "ratio": report.ratio,
            "gaps": _rows(gaps.slice(0, limit)),
            "gaps_total": gaps.num_rows,
            "entities_total": report.entities.num_rows,
        }
        if (expired := series.expired_before) is not None:
            found["expired"] = json_value(expired)
        if cells:
            found["windows"] = [json_value(each) for each in report.edges]
            found["entities"] = _rows(report.entities.slice(0, entities))
            found["matrix"] = [[None if cell < 0 else cell for cell in row] for row in report.strips[:entities]]
        return found

    is_keyed = await asked.questions.looked(
        asked.grant, lambda: asked.table(asked.call.path["table"]).snapshot.is_keyed
    )
    if is_keyed:  # its rows are read, which is a question like any other
        running = asked.running(f"coverage of {asked.call.path['table']}", "coverage")
        return Answer.json(await asked.questions.worked(running, look))
    return Answer.json(await asked.questions.looked(asked.grant, look))


def _rows(table: pa.Table) -> list[dict[str, Any]]:
    return [{name: json_value(value) for name, value in row.items()} for row in table.to_pylist()]


def _entity(asked: Asked, table: TableHandle) -> list[Any] | None:
    """Return the entity that is named, each value as its column has it."""
    values = [value for name, value in asked.pairs if name == "entity"]
    if not values:
        return None
    names = list(table.snapshot.settings.get("entity") or ())
    if len(values) != len(names):
        raise InvalidInputError(
            "an entity needs a value for each entity column", columns=", ".join(names), kind="bad_parameter"
        )
    kinds = [table.schema[name].type.arrow if name in table.schema else pa.string() for name in names]
    try:
        return [pa.scalar(value).cast(kind).as_py() for value, kind in zip(values, kinds, strict=True)]
    except pa.ArrowException as error:
        raise InvalidInputError("an entity's value does not fit its column", kind="bad_parameter") from error


def _bound(table: TableHandle, text: str | None) -> Any:
    """Return one end of a range: a time, or a number where the table counts by one."""
    if text is None or table.snapshot.settings.get("index") is None:
        return text
    try:
        return int(text)
    except ValueError:
        raise InvalidInputError("the table's index is a whole number", got=text[:40], kind="bad_parameter") from None


def _least(text: str) -> str | int:
    return int(text) if text.isdigit() and len(text) < 19 else text


DOORS = (
    Door(
        "/v1/coverage/{table}",
        answer_coverage,
        ("GET",),
        about=About(
            "What a table holds and what is missing.",
            {
                "start": "from this time on",
                "end": "until before this time",
                "entity": "only this one; a value for each entity column",
                "schedule": "what is expected, in place of the table's own",
                "least": "gaps of at least so many buckets, or of a duration",
                "limit": "gaps at most",
                "resolution": "into how many windows the range is cut, for a matrix of fractions",
                "entities": "rows of the matrix at most",
            },
        ),
    ),
)
