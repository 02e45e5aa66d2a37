"""Tell what a server does as spans in a table of the lake that it serves, if that is asked for.

A span for each request that was answered and for each group of them that was committed, with the columns that OTLP's
spans have. They are gathered for a second and stored as anybody's rows are; what is told of their own table is left
out, so that no span follows from another. Requests never wait for them: what there is no room for, or cannot be stored,
is counted as lost. It does not follow a request from one process to another.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

import tidelake
from tidelake.dynamic.values import encode
from tidelake.errors import TidelakeError
from tidelake.server.call import Load, Shape
from tidelake.server.staging import Place, Staging
from tidelake.server.wire.otlp_tables import SPANS

EVERY_S = 1.0
MOST = 20_000  # that wait; more are lost
SPAN_BYTES = 512  # that one takes of the budget


class OwnTraces:
    """The spans of one server, on their way into a table. It belongs to the thread of an event loop."""

    def __init__(self, staging: Staging, table: str, lost: Callable[[int], None]) -> None:
        self._staging, self.table, self._lost = staging, table, lost
        self._waiting: list[dict[str, Any]] = []
        told = {"service.name": "tidelake", "service.version": tidelake.__version__, "process.pid": os.getpid()}
        self._shared = {
            "service_name": "tidelake",
            "resource": encode(told),
            "scope_name": "tidelake.server",
            "scope_version": tidelake.__version__,
        }

    def request(self, protocol: str, status: int, size: int, seconds: float) -> None:
        """Tell of a request that was answered just now."""
        failed = f"status {status}" if status >= 500 else ""
        self._add(
            f"{protocol} request", "SERVER", seconds, {"protocol": protocol, "status": status, "bytes": size}, failed
        )

    def commit(self, table: str, requests: int, rows: int, size: int, seconds: float, failed: str) -> None:
        """Tell of a group that was committed, or was not."""
        if table != self.table:
            attributes = {"table": table, "requests": requests, "rows": rows, "bytes": size}
            self._add("commit", "INTERNAL", seconds, attributes, failed)

    def _add(self, name: str, kind: str, seconds: float, attributes: Mapping[str, Any], failed: str) -> None:
        if len(self._waiting) >= MOST:
            self._lost(1)
            return
        end_ns = time.time_ns()
        start_ns = end_ns - round(seconds * 1e9)
        self._waiting.append(
            {
                "time": start_ns // 1000,
                "start_time_unix_nano": start_ns,
                "end_time_unix_nano": end_ns,
                "duration_nano": end_ns - start_ns,
                "trace_id": secrets.token_hex(16),
                "span_id": secrets.token_hex(8),
                "name": name,
                "kind": kind,
                "status_code": "ERROR" if failed else "OK",
                "status_message": failed or None,
                "attributes": encode(dict(attributes)),
                **self._shared,
            }
        )

    async def run(self) -> None:
        """Store what has come, every second, until cancelled."""
        while True:
            await asyncio.sleep(EVERY_S)
            await self.store()

    async def store(self) -> None:
        """Store what has come; what cannot be stored now is lost, and counted."""
        spans, self._waiting = self._waiting, []
        if not spans:
            return
        load = Load(self.table, pa.Table.from_pylist(spans, SPANS.arrow), len(spans), Shape(SPANS.columns, "time"))
        try:
            outcome = await self._staging.offer(Place(self.table), load, size=len(spans) * SPAN_BYTES)
        except TidelakeError as error:
            outcome = error
        if isinstance(outcome, TidelakeError):
            self._lost(len(spans))
