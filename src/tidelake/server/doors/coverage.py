"""Say what a table holds and what is missing: gaps, and how full each stretch of time is, for a heat map.

``entity`` names one entity, a value for each entity column, in their order, by as many parameters of that name. With
``resolution``, each entity has a row of fractions from 0 to 1; null is where nothing is expected. Whoever sends a
question, as to ``/v1/query``, is told of the entities that it may be about, in the state that it reads. It does not
read rows, but for those of a table with a key.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tidelake.coverage.verbs import Judge, Series
from tidelake.errors import InvalidInputError
from tidelake.handle.table_handle import TableHandle
from tidelake.query.budget import Budget
from tidelake.query.json_rows import json_value
from tidelake.query.result import Result
from tidelake.server.call import Answer
from tidelake.server.doors.base import About, Asked, Door
from tidelake.server.doors.rows import ASKED, question_of

GAPS, MAX_GAPS = 1_000, 100_000
MAX_CELLS = 2_000
MAX_ENTITIES = 1_000


@dataclass(frozen=True, slots=True)
class _Told:
    """What an address tells of a range, and how much is wanted of it."""

    start: str | None
    end: str | None
    schedule: str | None
    least: str
    limit: int
    cells: int
    entities: int

    @classmethod
    def of(cls, asked: Asked) -> _Told:
        told = asked.call.query
        return cls(
            told.get("start"),
            told.get("end"),
            told.get("schedule"),
            told.get("least", "1"),
            asked.number("limit", GAPS, most=MAX_GAPS),
            asked.number("resolution", 0, most=MAX_CELLS),
            asked.number("entities", MAX_ENTITIES, least=1, most=MAX_ENTITIES),
        )

    def seen_in(self, series: Series, entity: list[Any] | None, where: Judge | None = None) -> dict[str, Any]:
        """Return what a table holds of the range, of one entity or of those that are meant."""
        is_counted = series.is_of_numbers
        about: dict[str, Any] = {
            "start": _bound(is_counted, self.start),
            "end": _bound(is_counted, self.end),
            "entity": entity,
            "schedule": self.schedule,
            "where": where,
        }
        report = series.report(**about, cells=self.cells or None)
        gaps = series.gaps(**about, least=_least(self.least))
        found: dict[str, Any] = {
            "table": report.table,
            "snapshot": report.snapshot,
            "bucket": report.bucket,
            "start": report.start,
            "end": report.end,
            "ratio": report.ratio,
            "gaps": _rows(gaps.slice(0, self.limit)),
            "gaps_total": gaps.num_rows,
            "entities_total": report.entities.num_rows,
        }
        if (expired := series.expired_before) is not None:
            found["expired"] = json_value(expired)
        if self.cells:
            found["windows"] = [json_value(each) for each in report.edges]
            found["entities"] = _rows(report.entities.slice(0, self.entities))
            found["matrix"] = [[None if cell < 0 else cell for cell in row] for row in report.strips[: self.entities]]
        return found


async def answer_coverage(asked: Asked) -> Answer:
    """Answer with how much of a range is held, and its gaps."""
    told, name = _Told.of(asked), asked.call.path["table"]
    if asked.call.body:
        question, _ = question_of(asked)
        return Answer.json(await asked.questions.whole(question, lambda result: _of_question(asked, told, result)))

    def look(budget: Budget | None = None) -> dict[str, Any]:
        table = asked.table(name).pinned()
        return told.seen_in(Series(table, table.coverage_store), _entity(asked, table))

    if await asked.questions.looked(asked.grant, lambda: asked.table(name).snapshot.is_keyed):
        running = asked.running(f"coverage of {name}", "coverage")  # its rows are read: a question like any other
        return Answer.json(await asked.questions.worked(running, look))
    return Answer.json(await asked.questions.looked(asked.grant, look))


def _of_question(asked: Asked, told: _Told, result: Result) -> dict[str, Any]:
    table = asked.table(asked.call.path["table"])
    found = result.coverage_of(table.name)
    if found is None:
        raise InvalidInputError("the question reads nothing of a table that counts", table=table.name, kind="not_asked")
    series, judge = found
    return told.seen_in(series, _entity(asked, table), judge)


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


def _bound(is_number: bool, text: str | None) -> Any:
    """Return one end of a range: a time, or a number where the table counts by one."""
    if text is None or not is_number:
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
        ("GET", "POST"),
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
            ASKED,
        ),
    ),
)
