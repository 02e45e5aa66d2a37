"""Be the door through which Spark's catalog asks: a verb and JSON in, JSON out, errors included.

An error is an answer, ``{"error": kind, "message": text}``, so that the JVM can raise what Spark expects of a catalog
(no such table, already there) and otherwise show one line. It does not answer itself: see ``tables``, ``told``,
``conditions`` and ``procedures``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import orjson

from tidelake.errors import AlreadyExistsError, InvalidInputError, TidelakeError
from tidelake.spark import changing
from tidelake.spark.catalog import aggregates, conditions, namespaces, procedures, source, tables, told

Question: TypeAlias = Mapping[str, Any]

log = logging.getLogger("tidelake.spark")

VERBS: dict[str, Callable[[Question], dict[str, Any]]] = {
    "namespaces": namespaces.list_namespaces,
    "create_namespace": namespaces.create_namespace,
    "drop_namespace": namespaces.drop_namespace,
    "tables": namespaces.list_tables,
    "load": tables.load,
    "create": tables.create,
    "stage": tables.stage,
    "publish": tables.publish,
    "discard": tables.discard,
    "alter": tables.alter,
    "drop": tables.drop,
    "rename": tables.rename,
    "told": told.rows_of,
    "where": conditions.where,
    "enough": conditions.enough,
    "statistics": conditions.statistics,
    "delete": conditions.delete_rows,
    "aggregate": aggregates.aggregate,
    "top": aggregates.top,
    "planned": aggregates.planned,
    "change": changing.begin,
    "procedures": procedures.list_procedures,
    "procedure": procedures.describe,
    "call": procedures.call,
    "source": source.pickled,
}


class Answers:
    """Answer Spark's JVM."""

    def apply(self, verb: str, question: str) -> str:
        """Answer one question."""
        return answer(verb, question)

    class Java:
        implements = ("java.util.function.BiFunction",)


def answer(verb: str, question: str) -> str:
    """Answer a question in JSON with JSON; whatever goes wrong is an answer, too."""
    try:
        if verb not in VERBS:
            raise InvalidInputError(f"{verb!r} is nothing that a catalog is asked")
        found = VERBS[verb](orjson.loads(question))
    except TidelakeError as error:
        kind = "already_exists" if isinstance(error, AlreadyExistsError) else error.kind
        found = {"error": kind, "message": f"tidelake: {error}"}
    except Exception as error:  # the JVM must be answered; what it is, is for the log
        log.warning("the catalog cannot answer %s", verb, exc_info=True)
        found = {"error": "internal", "message": f"tidelake: {type(error).__name__}: {error}"}
    return orjson.dumps(found).decode()
