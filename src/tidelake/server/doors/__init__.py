"""The doors at which questions are asked over HTTP, each a module with its routes.

To add one, write a module with a tuple ``DOORS`` of ``base.Door``, and name it in ``DOORS`` here. A door reads a
request and words the answer; whom it lets in, what a question may cost and see, and that it ends when nobody listens is
the same for all: see ``base`` and ``server.questions``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidelake.server.doors import coverage, kusto, openapi, prometheus, queries, rows, tables, tail
from tidelake.server.doors.base import Door

DOORS: Mapping[str, Sequence[Door]] = {
    "query": (*rows.DOORS, *queries.DOORS),
    "tables": (*tables.DOORS, *coverage.DOORS),
    "tail": tail.DOORS,
    "kusto": kusto.DOORS,
    "prometheus": prometheus.DOORS,
    "openapi": openapi.DOORS,
}
