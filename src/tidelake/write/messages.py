"""Store the messages of a broker in a table, with how far each partition is in the same commit.

The table is made to fit the first messages if it is not there. A message that no row can be made of goes to
``<table>_quarantine``, many in one commit but each under a key of its own, before its partition moves on; it holds
nobody up. Whether the commit
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
from tidelake.ingest import Rules, coerced_stream, infer_schema
from tidelake.ingest.messages import Bad, Decoder, Messages, Parsed, parsed, parted
from tidelake.model.settings import TableSettings
from tidelake.model.snapshot import RecordOffset
from tidelake.write.append import append
from tidelake.write.create import create_table
from tidelake.write.together import Offer, append_together

TIME = "ts"  # of a table whose first messages say no time
SAMPLE = 1_000  # messages that a table is made to fit
ASIDE_TOGETHER = 1_000  # messages that are set aside in one commit
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
    lake: LakeHandle,
    name: str,
    messages: Messages,
    offsets: Sequence[RecordOffset],
    *,
    group: str,
    decoder: Decoder | None = None,
) -> int:
    """Append messages and record how far their partitions are, in one commit; how many rows that were."""
    table, time = _table(lake, name, messages, decoder)
    rows, bad = parsed(messages, time, decoder)
    _set_aside(lake, f"{name}_quarantine", messages, bad, group)
    try:
        return append(table, rows.source() if len(rows) else [], offsets=offsets).rows
    except InvalidInputError:
        if not len(rows):
            raise
    rows, bad = parted(rows, partial(_misfit, table, time))
    if not bad:
        raise InvalidInputError("messages cannot be stored together", table=name, kind="bad_messages")
    _set_aside(lake, f"{name}_quarantine", messages, bad, group)
    return append(table, rows.source() if len(rows) else [], offsets=offsets).rows


def _misfit(table: TableHandle, time: str | None, rows: Parsed) -> str | None:
    """Return why rows cannot be given the table's shape, if so."""
    try:
        for _ in coerced_stream(rows.source(), table.schema, Rules(time=time)):
            pass
    except TidelakeError as error:
        return str(error)
    return None


def _table(lake: LakeHandle, name: str, messages: Messages, decoder: Decoder | None) -> tuple[TableHandle, str | None]:
    """Return the table and its time column; one that is not there is made to fit the first messages."""
    try:
        table = TableHandle.open(lake, name)
    except NotFoundError:
        rows, _ = parsed(messages.slice(0, SAMPLE), None, decoder)
        rows, _ = parted(rows, _unreadable)
        schema: Any = {TIME: "timestamp"}
        time: str | None = TIME
        if len(rows):
            found, named = infer_schema(rows.source())
            kinds = {column.name: column.type for column in found}
            schema, time = (found, named) if named else ({**kinds, TIME: "timestamp"}, TIME)
        with suppress(AlreadyExistsError):  # another was as fast
            create_table(lake.catalog, name, schema, time=time)
        table = TableHandle.open(lake, name)
    return table, TableSettings.of(table.snapshot.settings).time


def _unreadable(rows: Parsed) -> str | None:
    try:
        infer_schema(rows.source())
    except TidelakeError as error:
        return str(error)
    return None


def _set_aside(lake: LakeHandle, name: str, messages: Messages, bad: Sequence[Bad], group: str) -> None:
    """Keep messages that no row can be made of, each once."""
    if not bad:
        return
    try:
        table = TableHandle.open(lake, name)
    except NotFoundError:
        with suppress(AlreadyExistsError):
            create_table(lake.catalog, name, QUARANTINE, time="ts")
        table = TableHandle.open(lake, name)
    for start in range(0, len(bad), ASIDE_TOGETHER):
        several = bad[start : start + ASIDE_TOGETHER]
        sources = [messages.source(at) for at, _ in several]
        rows = pa.table(
            {
                "ts": pa.array([now_us()] * len(several), pa.timestamp("us", tz="UTC")),
                "source": sources,
                "reason": [reason for _, reason in several],
                "record": [messages.value(at).decode(errors="replace") for at, _ in several],
            }
        )
        offers = [Offer(rows.slice(at, 1), 1, f"kafka:{group}:{source}") for at, source in enumerate(sources)]
        for outcome in append_together(table, offers):
            if isinstance(outcome, TidelakeError):
                raise outcome
