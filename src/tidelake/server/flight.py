"""Answer Arrow Flight SQL, so that ADBC, JDBC and ODBC drivers can ask: rows go as Arrow from the engine to the client.

Statements, prepared ones with values for their places, what there is (catalogs, schemas, tables, types of tables), and
rows to append. There is one catalog, ``tidelake``; a schema is a namespace. A table can also be had by its name alone,
as a plain Flight ticket. A handle of a statement is its text, signed by nobody: it names nothing that its client could
not ask for, so any server of a lake answers it. Rows of a table that are many have several tickets, each for a part of
them at the same snapshot. Calls run in threads of the library's own; a question has its turn among all others of the
server until its last row is taken. It does not know transactions.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight

from tidelake.catalog.protocol import parse_table_name
from tidelake.errors import CorruptError, InvalidInputError, NotFoundError, TidelakeError, UnavailableError, redacted
from tidelake.ingest import ReadOptions
from tidelake.lake import Lake
from tidelake.model.schema import Schema
from tidelake.query.parameters import count_places, with_values
from tidelake.query.prepared import marked_json
from tidelake.server.access import Grant
from tidelake.server.credentials import Keeper, token_of
from tidelake.server.flight_words import (
    NAMED,
    SQL_INFO,
    command,
    handle,
    message,
    named,
    pattern,
    quoted,
    schema_bytes,
    sql_info,
    text_in,
    told_by,
    varint_field,
    view_of,
    wrapped,
)
from tidelake.server.protocols.protobuf import Field
from tidelake.server.protocols.rows import with_sound_values
from tidelake.server.question import Question
from tidelake.server.questions import Questions
from tidelake.server.refusals import Forbidden, Unauthenticated, failure_of
from tidelake.server.settings import ServeSettings
from tidelake.write.ingest import ingest

CATALOG = "tidelake"
TABLE = "TABLE"
WAIT_S = 30.0  # for room to append
INGESTS_AT_ONCE = 4
PARTS = 4  # of a large result, at most
PART_BYTES = 16 << 20  # as stored, from which a part is worth a connection
log = logging.getLogger("tidelake.server")

_CATALOGS = pa.schema([pa.field("catalog_name", pa.string(), nullable=False)])
_SCHEMAS = pa.schema([pa.field("catalog_name", pa.string()), pa.field("db_schema_name", pa.string(), nullable=False)])
_TABLE_TYPES = pa.schema([pa.field("table_type", pa.string(), nullable=False)])
_TABLES = pa.schema(
    [
        pa.field("catalog_name", pa.string()),
        pa.field("db_schema_name", pa.string()),
        pa.field("table_name", pa.string(), nullable=False),
        pa.field("table_type", pa.string(), nullable=False),
    ]
)


class FlightDoor(flight.FlightServerBase):  # type: ignore[misc]
    """A server of Flight SQL beside the one of HTTP."""

    def __init__(self, lake: Lake, questions: Questions, keeper: Keeper, settings: ServeSettings) -> None:
        self._lake, self._questions, self._allowance = lake, questions, keeper.allowance
        self._ingests = threading.BoundedSemaphore(INGESTS_AT_ONCE)
        secure = settings.tls_certificate is not None
        chain = [_file(settings.tls_certificate), _file(settings.tls_key)]
        super().__init__(
            f"grpc+{'tls' if secure else 'tcp'}://{settings.host}:{settings.flight_port}",
            auth_handler=_Open(),
            middleware={"who": _Who(keeper)},
            tls_certificates=[tuple(chain)] if secure else None,
        )

    # what is asked

    def get_flight_info(self, context: Any, descriptor: Any) -> Any:
        """Say where the answer to a command is: here, under tickets that say the command again.

        Rows that a scan gives as they are, and many of them, are in several places, to be read at the same time.
        """
        with _told():
            who = _who(context)
            name, fields = command(descriptor.command) if descriptor.command else named(descriptor.path)
            if name in _LISTED:
                tickets, schema = [bytes(descriptor.command)], self._listed(name, fields, who).schema
            else:
                tickets, schema = self._planned(_statement(name, fields), who)
            endpoints = [flight.FlightEndpoint(flight.Ticket(each), []) for each in tickets]  # where it was asked
            return flight.FlightInfo(schema, descriptor, endpoints, -1, -1)

    def get_schema(self, context: Any, descriptor: Any) -> Any:
        """Say which columns the answer to a command has."""
        with _told():
            who = _who(context)
            name, fields = command(descriptor.command) if descriptor.command else named(descriptor.path)
            if name in _LISTED:
                return flight.SchemaResult(self._listed(name, fields, who).schema)
            return flight.SchemaResult(self._planned(_statement(name, fields), who)[1])

    def do_get(self, context: Any, ticket: Any) -> Any:
        """Give the rows of a ticket, as they are read."""
        with _told():
            who, data = _who(context), ticket.ticket
            if not data.startswith(b"\n") and NAMED.fullmatch(data.decode(errors="replace")):
                return self._rows({"sql": f"select * from {quoted(data.decode())}"}, who)
            name, fields = command(data)
            if name in _LISTED:
                return flight.RecordBatchStream(self._listed(name, fields, who))
            if name != "TicketStatementQuery":
                raise InvalidInputError("a ticket that is not known", kind="bad_ticket")
            return self._rows(told_by(text_in(fields, 1)), who)

    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        """Take values for the places of a prepared statement, or rows to append."""
        with _told():
            who = _who(context)
            name, fields = command(descriptor.command)
            if name == "CommandPreparedStatementQuery":
                told = told_by(text_in(fields, 1))
                text = told.get("prepared", told["sql"])  # values given before make way for these
                bound = {"sql": with_values(text, _one_row(reader)), "prepared": text}
                writer.write(pa.py_buffer(message({1: handle(bound)})))
            elif name == "CommandStatementIngest":
                writer.write(pa.py_buffer(varint_field(1, self._ingested(fields, reader, who))))
            else:
                raise InvalidInputError("nothing can be put there", command=name[:80], kind="bad_command")

    def do_action(self, context: Any, action: Any) -> Iterator[Any]:
        """Make and close prepared statements."""
        with _told():
            who = _who(context)
            body = action.body.to_pybytes() if action.body is not None else b""
            if action.type == "CreatePreparedStatement":
                text = text_in(command(body)[1], 1)
                told = {1: handle({"sql": text})}
                if places := count_places(text):
                    told[3] = schema_bytes(pa.schema([pa.field(f"{at + 1}", pa.null()) for at in range(places)]))
                else:
                    told[2] = schema_bytes(self._planned({"sql": text}, who)[1])
                yield flight.Result(pa.py_buffer(wrapped("ActionCreatePreparedStatementResult", message(told))))
            elif action.type in ("ClosePreparedStatement", "CloseSession"):
                yield flight.Result(pa.py_buffer(b""))  # there is nothing to let go of
            else:
                raise InvalidInputError("no such action", action=str(action.type)[:80], kind="bad_action")

    def list_actions(self, context: Any) -> list[tuple[str, str]]:
        """List what ``do_action`` does."""
        return [(name, "") for name in ("CreatePreparedStatement", "ClosePreparedStatement", "CloseSession")]

    def list_flights(self, context: Any, criteria: bytes) -> Iterator[Any]:
        """List the tables that the client may see."""
        with _told():
            who = _who(context)
            for name in self._tables(who):
                descriptor = flight.FlightDescriptor.for_path(name)
                ticket = flight.Ticket(name.encode())
                schema = _shown(self._lake.table(name).schema)
                yield flight.FlightInfo(schema, descriptor, [flight.FlightEndpoint(ticket, [])], -1, -1)

    # how it is answered

    def _question(self, told: Mapping[str, Any], who: Grant) -> Question:
        who.check("read")
        return Question(told["sql"], "sql", who, who.namespace(None), who.user(None), view=view_of(told), door="flight")

    def _planned(self, told: Mapping[str, Any], who: Grant) -> tuple[list[bytes], pa.Schema]:
        """Return the tickets for the rows of a statement, and their columns; nothing is run to know them."""
        turn = self._questions.turn(self._question(told, who))
        try:
            result = turn.asked()
            parts = min(PARTS, result.read_bytes // PART_BYTES) if result.is_plain else 0
            if parts < 2:
                return [_ticket(told)], result.schema
            pinned = {**told, "at": dict(result.snapshots)}
            return [_ticket({**pinned, "part": [at, parts]}) for at in range(parts)], result.schema
        finally:
            turn.end()

    def _rows(self, told: Mapping[str, Any], who: Grant) -> Any:
        turn = self._questions.turn(self._question(told, who))
        try:
            reader = turn.asked().to_reader()
            return flight.GeneratorStream(reader.schema, _each(turn.rows(reader)))
        except BaseException:
            turn.end()
            raise

    def _listed(self, name: str, fields: list[Field], who: Grant) -> pa.Table:
        return _LISTED[name](self, fields, who)

    def _tables(self, who: Grant) -> list[str]:
        who.check("read")
        return [name for name in self._lake.tables() if who.may_reach(name)]

    def _ingested(self, fields: list[Field], reader: Any, who: Grant) -> int:
        """Append rows to a table as they come; one that is not there is made, unless the client says that it must be.

        All of them are one commit. What is held of them at a time is bounded by whoever writes extents.
        """
        table, schema = text_in(fields, 2), text_in(fields, 3)
        name = ".".join(parse_table_name(f"{schema or who.namespace(None)}.{table}"))
        who.check("write", name)
        options = {part.number: part.value for each in fields if each.number == 1 for part in each.fields()}
        is_there = name in self._lake.tables()
        if not is_there and options.get(1) == 2:  # fail if it does not exist
            raise NotFoundError("no such table", table=name, kind="no_table")
        if is_there and options.get(2) == 1:  # fail if it exists
            raise InvalidInputError("the table is there already", table=name, kind="exists")
        if is_there and options.get(2) == 3:
            raise InvalidInputError("a table is not replaced here: drop it first", table=name, kind="exists")
        if not self._ingests.acquire(timeout=WAIT_S):
            raise UnavailableError("too many clients append", kind="busy")
        came: list[int] = []
        try:
            self._allowance.rows(who, 0)  # how many bytes come is known when they came
            rows = pa.RecordBatchReader.from_batches(reader.schema, _sound(reader, came))
            report = ingest(self._lake.handle, name, rows, ReadOptions(), user=who.user(None), or_shared=True)
        finally:
            self._ingests.release()
            self._allowance.came(who, sum(came))
        self._allowance.stored(who, sum(came))
        return report.rows

    # what there is

    def _list_catalogs(self, fields: list[Field], who: Grant) -> pa.Table:
        return pa.table({"catalog_name": [CATALOG]}, schema=_CATALOGS)

    def _list_schemas(self, fields: list[Field], who: Grant) -> pa.Table:
        like = pattern(text_in(fields, 2), has=2, fields=fields)
        names = sorted({name.partition(".")[0] for name in self._tables(who)})
        kept = [name for name in names if like(name)]
        return pa.table({"catalog_name": [CATALOG] * len(kept), "db_schema_name": kept}, schema=_SCHEMAS)

    def _list_tables(self, fields: list[Field], who: Grant) -> pa.Table:
        schemas = pattern(text_in(fields, 2), has=2, fields=fields)
        tables = pattern(text_in(fields, 3), has=3, fields=fields)
        kinds = [each.text() for each in fields if each.number == 4]
        wants_schema = any(each.number == 5 and each.value for each in fields)
        names = [tuple(name.partition(".")[::2]) for name in self._tables(who) if not kinds or TABLE in kinds]
        kept = [(own, name) for own, name in names if schemas(own) and tables(name)]
        columns: dict[str, Any] = {
            "catalog_name": [CATALOG] * len(kept),
            "db_schema_name": [own for own, _ in kept],
            "table_name": [name for _, name in kept],
            "table_type": [TABLE] * len(kept),
        }
        if not wants_schema:
            return pa.table(columns, schema=_TABLES)
        columns["table_schema"] = [schema_bytes(_shown(self._lake.table(f"{own}.{name}").schema)) for own, name in kept]
        return pa.table(columns, schema=_TABLES.append(pa.field("table_schema", pa.binary(), nullable=False)))

    def _list_types(self, fields: list[Field], who: Grant) -> pa.Table:
        return pa.table({"table_type": [TABLE]}, schema=_TABLE_TYPES)

    def _list_info(self, fields: list[Field], who: Grant) -> pa.Table:
        asked = [number for each in fields if each.number == 1 for number in each.numbers()]
        return sql_info({name: value for name, value in SQL_INFO.items() if not asked or name in asked})


_LISTED: dict[str, Callable[[FlightDoor, list[Field], Grant], pa.Table]] = {
    "CommandGetCatalogs": FlightDoor._list_catalogs,
    "CommandGetDbSchemas": FlightDoor._list_schemas,
    "CommandGetTables": FlightDoor._list_tables,
    "CommandGetTableTypes": FlightDoor._list_types,
    "CommandGetSqlInfo": FlightDoor._list_info,
}


class _Open(flight.ServerAuthHandler):  # type: ignore[misc]
    """Let everybody shake hands: who they are is asked of every call."""

    def authenticate(self, outgoing: Any, incoming: Any) -> None:
        """Nothing is said here."""

    def is_valid(self, token: Any) -> str:
        """Return no name."""
        return ""


class _Who(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Find the token of a call; a name and a password give a token back, as drivers want it."""

    def __init__(self, keeper: Keeper) -> None:
        super().__init__()
        self._keeper = keeper

    def start_call(self, info: Any, headers: Any) -> Any:
        """Say who calls; refuse who is not known."""
        told = {name.lower(): values[0] for name, values in headers.items() if values}
        told = {name: value for name, value in told.items() if isinstance(value, str)}
        token = token_of(told)
        try:
            grant = self._keeper.known(token)
            if grant is None:
                grant = self._keeper.find(token or "")
            self._keeper.allowance.request(grant)
        except Unauthenticated as error:
            raise flight.FlightUnauthenticatedError(str(error)) from None
        except TidelakeError as error:
            raise flight.FlightUnavailableError(failure_of(error).message) from None
        is_basic = told.get("authorization", "").lower().startswith("basic ")
        return _Call(grant, token if is_basic else None)


class _Call(flight.ServerMiddleware):  # type: ignore[misc]
    def __init__(self, grant: Grant, token: str | None) -> None:
        super().__init__()
        self.grant, self._token = grant, token

    def sending_headers(self) -> dict[str, str]:
        """Give the token back to who signed in with a password."""
        return {} if self._token is None else {"authorization": f"Bearer {self._token}"}


@contextmanager
def _told() -> Iterator[None]:
    """Word our errors as Flight's."""
    try:
        yield
    except Unauthenticated as error:
        raise flight.FlightUnauthenticatedError(str(error)) from None
    except Forbidden as error:
        raise flight.FlightUnauthorizedError(str(error)) from None
    except TidelakeError as error:
        failure = failure_of(error, of_question=True)
        if isinstance(error, CorruptError):
            log.error("damaged kind=%s: %s", error.kind, redacted(str(error)))
        if failure.is_temporary and error.kind not in ("out_of_time", "out_of_memory", "stopped"):
            raise flight.FlightUnavailableError(failure.message) from None
        # Of Arrow's own errors the library would tell the stack too.
        raise flight.FlightError(str(error) if failure.status != 500 else failure.message) from None
    except flight.FlightError:
        raise
    except Exception as error:
        log.error("defect in flight: %s", redacted(repr(error)), exc_info=error)
        raise flight.FlightInternalError("an error that should not happen; the server's log has it") from None


def _who(context: Any) -> Grant:
    found = context.get_middleware("who")
    grant: Grant | None = None if found is None else found.grant
    if grant is None:
        raise Unauthenticated("a token is needed")
    return grant


def _statement(name: str, fields: list[Field]) -> dict[str, Any]:
    """Return the question that a command asks."""
    told = text_in(fields, 1)
    match name:
        case "":
            return {"sql": f"select * from {quoted(told)}"}
        case "CommandStatementQuery":
            return {"sql": told}
        case "CommandPreparedStatementQuery":
            return {"sql": told_by(told)["sql"]}
        case _:
            raise InvalidInputError("a command that is not known", command=name[:80], kind="bad_command")


def _ticket(told: Mapping[str, Any]) -> bytes:
    return wrapped("TicketStatementQuery", message({1: handle(told)}))


def _shown(schema: Schema) -> pa.Schema:
    """Return the columns of a table as answers have them: with logical types, and dynamic values as JSON."""
    is_json = [column.type.kind == "dynamic" and column.type.logical is None for column in schema]
    kinds = [pa.string() if json else column.type.shown for column, json in zip(schema, is_json, strict=True)]
    return marked_json(pa.schema(list(zip(schema.names, kinds, strict=True))), is_json)


def _one_row(reader: Any) -> list[Any]:
    """Return the values of the only row of parameters."""
    rows = 0
    values: list[Any] = []
    for chunk in reader:
        chunk.data.validate(full=True)
        rows += chunk.data.num_rows
        if rows > 1:
            raise InvalidInputError("a statement is asked with one row of values", kind="bad_parameters")
        values = values or [value for row in chunk.data.to_pylist() for value in row.values()]
    return values


def _sound(reader: Any, sizes: list[int]) -> Iterator[pa.RecordBatch]:
    """Yield the rows that a client sends, once they are known to be what they say, and note their sizes."""
    for chunk in reader:
        sizes.append(chunk.data.nbytes)
        chunk.data.validate(full=True)
        yield from with_sound_values(pa.Table.from_batches([chunk.data])).to_batches()


def _each(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    with _told():
        yield from rows


def _file(place: str | None) -> bytes:
    if place is None:
        return b""
    with open(place, "rb") as file:
        return file.read()
