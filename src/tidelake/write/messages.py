"""Store the messages of a broker in a table, with how far each partition is in the same commit.

The table is made to fit the first messages if it is not there. A message that no row can be made of goes to
``<table>_quarantine``, under a key of its own, before its partition moves on; it holds nobody up. Whether the commit
holds depends on where each partition is: see ``RecordOffset``. It does not read from brokers.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import pyarrow as pa

from tidelake.catalog.protocol import now_us, parse_table_name
from tidelake.errors import AlreadyExistsError, InvalidInputError, NotFoundError, TidelakeError
from tidelake.handle.lake_handle import LakeHandle
from tidelake.handle.table_handle import TableHandle
from tidelake.ingest import Rules, coerce_ndjson, infer_schema
from tidelake.ingest.messages import Line, Message, lines_of, parted
from tidelake.model.settings import TableSettings
from tidelake.model.snapshot import RecordOffset
from tidelake.write.append import append
from tidelake.write.create import create_table

TIME = "ts"  # of a table whose first messages say no time
SAMPLE = 1_000  # messages that a table is made to fit
QUARANTINE = {"ts": "timestamp", "source": "string", "reason": "string", "record": "string"}


def parse_topics(text: str) -> dict[str, str]:
    """Read ``topic=namespace.table, …``; a topic alone is the table of its name."""
    tables: dict[str, str] = {}
    for part in filter(None, (each.strip() for each in text.split(","))):
        topic, _, table = part.partition("=")
        if topic.strip() in tables:
            raise InvalidInputError("a topic is named twice", topic=topic.strip(), kind="bad_topics")
        tables[topic.strip()] = ".".join(parse_table_name((table or topic).strip()))
    if not tables:
        raise InvalidInputError("no topics: write topic=namespace.table, …", kind="bad_topics")
    return tables


def stream_of(group: str, topic: str, partition: int) -> str:
    """Return the name under which a table keeps how far a partition is."""
    return f"kafka:{group}:{topic}:{partition}"


def positions_of(lake: LakeHandle, table: str, streams: Sequence[str]) -> dict[str, int]:
    """Return the last message of each stream that is in a table; streams without one are left out."""
    try:
        held = TableHandle.open(lake, table)
    except NotFoundError:
        return {}
    return held.catalog.positions(held.scope, streams)


def store_messages(
    lake: LakeHandle, name: str, messages: Sequence[Message], offsets: Sequence[RecordOffset], *, group: str
) -> int:
    """Append messages and record how far their partitions are, in one commit; how many rows that were."""
    table, time = _table(lake, name, messages)
    lines = lines_of(messages, time)
    bad = [each for each in lines if each.wrong is not None]
    good = [each for each in lines if each.wrong is None] if bad else lines
    _set_aside(lake, f"{name}_quarantine", bad, group)
    try:
        return append(table, _joined(good) if good else [], offsets=offsets).rows
    except InvalidInputError:
        if not good:
            raise
    good, bad = parted(good, partial(_misfit, table, time))
    if not bad:
        raise InvalidInputError("messages cannot be stored together", table=name, kind="bad_messages")
    _set_aside(lake, f"{name}_quarantine", bad, group)
    return append(table, _joined(good) if good else [], offsets=offsets).rows


def _joined(lines: Sequence[Line]) -> bytes:
    return b"\n".join([each.text for each in lines])


def _misfit(table: TableHandle, time: str | None, lines: Sequence[Line]) -> str | None:
    """Return why lines cannot be given the table's shape, if so."""
    try:
        coerce_ndjson(_joined(lines), table.schema, Rules(time=time))
    except TidelakeError as error:
        return str(error)
    return None


def _table(lake: LakeHandle, name: str, messages: Sequence[Message]) -> tuple[TableHandle, str | None]:
    """Return the table and its time column; one that is not there is made to fit the first messages."""
    try:
        table = TableHandle.open(lake, name)
    except NotFoundError:
        lines = [each for each in lines_of(messages[:SAMPLE], None) if each.wrong is None]
        good, _ = parted(lines, _unreadable)
        schema: Any = {TIME: "timestamp"}
        time: str | None = TIME
        if good:
            found, named = infer_schema(_joined(good))
            kinds = {column.name: column.type for column in found}
            schema, time = (found, named) if named else ({**kinds, TIME: "timestamp"}, TIME)
        with suppress(AlreadyExistsError):  # another was as fast
            create_table(lake.catalog, name, schema, time=time)
        table = TableHandle.open(lake, name)
    return table, TableSettings.of(table.snapshot.settings).time


def _unreadable(lines: Sequence[Line]) -> str | None:
    try:
        infer_schema(_joined(lines))
    except TidelakeError as error:
        return str(error)
    return None


def _set_aside(lake: LakeHandle, name: str, bad: Sequence[Line], group: str) -> None:
    """Keep messages that no row can be made of, each once."""
    if not bad:
        return
    try:
        table = TableHandle.open(lake, name)
    except NotFoundError:
        with suppress(AlreadyExistsError):
            create_table(lake.catalog, name, QUARANTINE, time="ts")
        table = TableHandle.open(lake, name)
    for line in bad:
        row = {
            "ts": pa.array([now_us()], pa.timestamp("us", tz="UTC")),
            "source": [line.message.source],
            "reason": [line.wrong],
            "record": [line.message.value.decode(errors="replace")],
        }
        append(table, pa.table(row), key=f"kafka:{group}:{line.message.source}")
