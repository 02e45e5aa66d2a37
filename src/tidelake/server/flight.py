"""Answer Arrow Flight SQL, so that ADBC, JDBC and ODBC drivers can ask: rows go as Arrow from the engine to the client.

Statements, prepared ones with values for their places, what there is (catalogs, schemas, tables, types of tables), and
rows to append. There is one catalog, ``tidelake``; a schema is a namespace. A table can also be had by its name alone,
as a plain Flight ticket. A handle of a statement is its text, signed by nobody: it names nothing that its client could
not ask for, so any server of a lake answers it. Calls run in threads of the library's own.
"""

from __future__ import annotations

import base64
import binascii
import json
import logging
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight

from tidelake.errors import InvalidInputError, NotFoundError, TidelakeError, UnavailableError, redacted
from tidelake.ingest import ReadOptions
from tidelake.lake import Lake
from tidelake.query.parameters import with_values
from tidelake.query.result import Result
from tidelake.server.access import Grant
from tidelake.server.credentials import Keeper, token_of
from tidelake.server.protocols.protobuf import Field, Message
from tidelake.server.question import Question
from tidelake.server.questions import AT_ONCE, Questions
from tidelake.server.refusals import Forbidden, Unauthenticated, failure_of
from tidelake.server.settings import ServeSettings
from tidelake.write.ingest import ingest

CATALOG = "tidelake"
TABLE = "TABLE"
WAIT_S = 30.0  # for one's turn
PREFIX = "type.googleapis.com/arrow.flight.protocol.sql."
MAX_COMMAND_BYTES = 1 << 20
SQL_INFO: dict[int, str | bool | int] = {
    0: "tidelake",  # the server's name
    1: "1.0",
    2: pa.__version__,  # of Arrow
    3: False,  # read only
    4: True,  # SQL
    5: False,  # Substrait
    8: 0,  # transactions: none
    500: False,  # CREATE CATALOG
    501: False,
    502: False,
    503: 1,  # names without quotes: any case
    504: "`",
    505: 1,
}

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
_NAMED = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*(\.[A-Za-z_][A-Za-z0-9_-]*)?")


class FlightDoor(flight.FlightServerBase):  # type: ignore[misc]
    """A server of Flight SQL beside the one of HTTP."""

    def __init__(self, lake: Lake, questions: Questions, keeper: Keeper, settings: ServeSettings) -> None:
        self._lake, self._questions = lake, questions
        self._turns = threading.BoundedSemaphore(AT_ONCE)
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
        """Say where the answer to a command is: here, under a ticket that says the command again."""
        with _told(), self._as(context) as who:
            command = _command(descriptor.command) if descriptor.command else _named(descriptor.path)
            schema, ticket = self._planned(command, bytes(descriptor.command or b""), who)
            endpoint = flight.FlightEndpoint(ticket, [])  # no location: the one that was asked
            return flight.FlightInfo(schema, descriptor, [endpoint], -1, -1)

    def get_schema(self, context: Any, descriptor: Any) -> Any:
        """Say which columns the answer to a command has."""
        with _told(), self._as(context) as who:
            return flight.SchemaResult(self._planned(_command(descriptor.command), b"", who)[0])

    def do_get(self, context: Any, ticket: Any) -> Any:
        """Give the rows of a ticket."""
        with _told(), self._as(context) as who:
            reader = self._rows(ticket.ticket, who)
        return flight.GeneratorStream(reader.schema, _each(reader))

    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        """Take values for the places of a prepared statement, or rows to append."""
        with _told(), self._as(context) as who:
            name, fields = _command(descriptor.command)
            if name == "CommandPreparedStatementQuery":
                values = reader.read_all()
                if values.num_rows > 1:
                    raise InvalidInputError("a statement is asked with one row of values", kind="bad_parameters")
                handle = _handle_of(_text_in(fields, 1))
                row = list(values.to_pylist()[0].values()) if values.num_rows else []
                told = _handle(handle["sql"], row)
                writer.write(pa.py_buffer(_message({1: told})))
            elif name == "CommandStatementIngest":
                writer.write(pa.py_buffer(_varint_field(1, self._ingested(fields, reader, who))))
            else:
                raise InvalidInputError("nothing can be put there", command=name, kind="bad_command")

    def do_action(self, context: Any, action: Any) -> Iterator[Any]:
        """Make and close prepared statements."""
        with _told(), self._as(context) as who:
            body = action.body.to_pybytes() if action.body is not None else b""
            if action.type == "CreatePreparedStatement":
                text = _text_in(_command(body)[1], 1)
                handle = _handle(text, None)
                told = {1: handle}
                if "?" not in text:
                    told[2] = _schema_bytes(self._asked(text, who).to_reader().schema)
                yield flight.Result(pa.py_buffer(_any("ActionCreatePreparedStatementResult", _message(told))))
            elif action.type in ("ClosePreparedStatement", "CloseSession"):
                yield flight.Result(pa.py_buffer(b""))  # there is nothing to let go of
            else:
                raise InvalidInputError("no such action", action=str(action.type)[:80], kind="bad_action")

    def list_actions(self, context: Any) -> list[tuple[str, str]]:
        """List what ``do_action`` does."""
        return [(name, "") for name in ("CreatePreparedStatement", "ClosePreparedStatement", "CloseSession")]

    def list_flights(self, context: Any, criteria: bytes) -> Iterator[Any]:
        """List the tables that the client may see."""
        with _told(), self._as(context) as who:
            for name in self._tables(who):
                descriptor = flight.FlightDescriptor.for_path(name)
                ticket = flight.Ticket(name.encode())
                schema = self._lake.table(name).schema.arrow
                yield flight.FlightInfo(schema, descriptor, [flight.FlightEndpoint(ticket, [])], -1, -1)

    # how it is answered

    @contextmanager
    def _as(self, context: Any) -> Iterator[Grant]:
        """Do something for whoever calls, when it is their turn."""
        found = context.get_middleware("who")
        grant: Grant | None = None if found is None else found.grant
        if grant is None:
            raise Unauthenticated("a token is needed")
        if not self._turns.acquire(timeout=WAIT_S):
            raise UnavailableError("too many questions wait for an answer", kind="busy")
        try:
            yield grant
        finally:
            self._turns.release()

    def _planned(self, command: tuple[str, list[Field]], data: bytes, who: Grant) -> tuple[pa.Schema, Any]:
        """Return the columns of a command's answer, and the ticket for its rows; of a listing, the command itself."""
        name, fields = command
        if name == "":
            table = _text_in(fields, 1)
            return self._asked(f"select * from {_quoted(table)}", who).to_reader().schema, flight.Ticket(table.encode())
        if name in ("CommandStatementQuery", "CommandPreparedStatementQuery"):
            told = _text_in(fields, 1)
            text = told if name == "CommandStatementQuery" else _question_of(told)
            ticket = _any("TicketStatementQuery", _message({1: _handle(text, None)}))
            return self._asked(text, who).to_reader().schema, flight.Ticket(ticket)
        if name not in _LISTED:
            raise InvalidInputError("a command that is not known", command=name[:80], kind="bad_command")
        return _LISTED[name](self, fields, who).schema, flight.Ticket(data)

    def _rows(self, ticket: bytes, who: Grant) -> pa.RecordBatchReader:
        if not ticket.startswith(b"\n") and _NAMED.fullmatch(ticket.decode(errors="replace")):
            return self._asked(f"select * from {_quoted(ticket.decode())}", who).to_reader()
        name, fields = _command(ticket)
        if name == "TicketStatementQuery":
            return self._asked(_question_of(_text_in(fields, 1)), who).to_reader()
        if name not in _LISTED:
            raise InvalidInputError("a ticket that is not known", kind="bad_ticket")
        listed: pa.Table = _LISTED[name](self, fields, who)
        return listed.to_reader()

    def _asked(self, text: str, who: Grant) -> Result:
        who.check("read")
        question = Question(text, "sql", who, who.namespace(None), who.user(None))
        return self._questions.asked(question)

    def _tables(self, who: Grant) -> list[str]:
        who.check("read")
        return [name for name in self._lake.tables() if who.may_reach(name)]

    def _ingested(self, fields: list[Field], reader: Any, who: Grant) -> int:
        """Append rows to a table; one that is not there is made, unless the client says that it must be."""
        table, schema = _text_in(fields, 2), _text_in(fields, 3)
        name = f"{schema or who.namespace(None)}.{table}"
        who.check("write", name)
        options = {part.number: part.value for each in fields if each.number == 1 for part in each.fields()}
        is_there = name in self._lake.tables()
        if not is_there and options.get(1) == 2:  # fail if it does not exist
            raise NotFoundError("no such table", table=name, kind="no_table")
        if is_there and options.get(2) == 1:  # fail if it exists
            raise InvalidInputError("the table is there already", table=name, kind="exists")
        if is_there and options.get(2) == 3:
            raise InvalidInputError("a table is not replaced here: drop it first", table=name, kind="exists")
        rows = pa.Table.from_batches([chunk.data for chunk in reader], schema=reader.schema)
        report = ingest(self._lake.handle, name, rows, ReadOptions(), user=who.user(None), or_shared=True)
        return report.rows

    # what there is

    def _list_catalogs(self, fields: list[Field], who: Grant) -> pa.Table:
        return pa.table({"catalog_name": [CATALOG]}, schema=_CATALOGS)

    def _list_schemas(self, fields: list[Field], who: Grant) -> pa.Table:
        like = _pattern(_text_in(fields, 2), has=2, fields=fields)
        names = sorted({name.partition(".")[0] for name in self._tables(who)})
        kept = [name for name in names if like(name)]
        return pa.table({"catalog_name": [CATALOG] * len(kept), "db_schema_name": kept}, schema=_SCHEMAS)

    def _list_tables(self, fields: list[Field], who: Grant) -> pa.Table:
        schemas = _pattern(_text_in(fields, 2), has=2, fields=fields)
        tables = _pattern(_text_in(fields, 3), has=3, fields=fields)
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
        columns["table_schema"] = [_schema_bytes(self._lake.table(f"{own}.{name}").schema.arrow) for own, name in kept]
        return pa.table(columns, schema=_TABLES.append(pa.field("table_schema", pa.binary(), nullable=False)))

    def _list_types(self, fields: list[Field], who: Grant) -> pa.Table:
        return pa.table({"table_type": [TABLE]}, schema=_TABLE_TYPES)

    def _list_info(self, fields: list[Field], who: Grant) -> pa.Table:
        asked = [number for each in fields if each.number == 1 for number in each.numbers()]
        return _sql_info({name: value for name, value in SQL_INFO.items() if not asked or name in asked})


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
        failure = failure_of(error)
        if failure.is_temporary and error.kind not in ("out_of_time", "out_of_memory", "stopped"):
            raise flight.FlightUnavailableError(failure.message) from None
        # Of Arrow's own errors the library would tell the stack too.
        raise flight.FlightError(str(error) if failure.status != 500 else failure.message) from None
    except flight.FlightError:
        raise
    except Exception as error:
        log.error("defect in flight: %s", redacted(repr(error)), exc_info=error)
        raise flight.FlightInternalError("an error that should not happen; the server's log has it") from None


def _each(reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    with _told():
        yield from reader


def _file(place: str | None) -> bytes:
    if place is None:
        return b""
    with open(place, "rb") as file:
        return file.read()


def _command(data: bytes) -> tuple[str, list[Field]]:
    """Return the name and the fields of a command."""
    if len(data) > MAX_COMMAND_BYTES:
        raise InvalidInputError("the command is too large", limit_bytes=MAX_COMMAND_BYTES, kind="too_large")
    parts = {field.number: field for field in Message(bytes(data)).fields()}
    if 1 not in parts or not parts[1].text().startswith(PREFIX):
        raise InvalidInputError("this is no command of Flight SQL", kind="bad_command")
    inner = list(parts[2].fields()) if 2 in parts else []
    return parts[1].text().removeprefix(PREFIX), inner


def _named(path: Any) -> tuple[str, list[Field]]:
    name = ".".join(part.decode() for part in path or ())
    return "", list(Message(_message({1: name.encode()})).fields())


def _text_in(fields: list[Field], number: int) -> str:
    return next((each.text() for each in fields if each.number == number), "")


def _pattern(text: str, *, has: int, fields: list[Field]) -> Callable[[str], bool]:
    """Return a test for names that are LIKE a pattern; all are, where there is none."""
    if not any(each.number == has for each in fields):
        return lambda name: True
    wanted = re.compile("".join({"%": ".*", "_": "."}.get(letter, re.escape(letter)) for letter in text), re.DOTALL)
    return lambda name: wanted.fullmatch(name) is not None


def _quoted(name: str) -> str:
    if not _NAMED.fullmatch(name):
        raise InvalidInputError("not a table's name", table=name[:80], kind="bad_name")
    return ".".join(f"`{part}`" for part in name.split("."))


def _handle(text: str, values: list[Any] | None) -> bytes:
    """Return a handle that is the question itself, its values put in."""
    return base64.urlsafe_b64encode(json.dumps({"sql": text if values is None else with_values(text, values)}).encode())


def _handle_of(handle: str) -> dict[str, str]:
    try:
        told = json.loads(base64.urlsafe_b64decode(handle))
        if isinstance(told, dict) and isinstance(told.get("sql"), str):
            return told
    except (ValueError, binascii.Error):
        pass
    raise InvalidInputError("no statement has this handle", kind="bad_handle")


def _question_of(handle: str) -> str:
    return _handle_of(handle)["sql"]


def _varint_field(number: int, value: int) -> bytes:
    return bytes(_number(number << 3)) + bytes(_number(value))


def _number(value: int) -> list[int]:
    out = []
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return [*out, value]


def _message(fields: dict[int, bytes]) -> bytes:
    return b"".join(bytes(_number(n << 3 | 2)) + bytes(_number(len(data))) + data for n, data in fields.items())


def _any(name: str, data: bytes) -> bytes:
    return _message({1: f"{PREFIX}{name}".encode(), 2: data})


def _schema_bytes(schema: pa.Schema) -> bytes:
    return bytes(schema.serialize())


def _sql_info(told: dict[int, str | bool | int]) -> pa.Table:
    """Return facts about the server as the protocol has them: a number and a value of one of several types."""
    texts = [value for value in told.values() if isinstance(value, str)]
    truths = [value for value in told.values() if isinstance(value, bool)]
    numbers = [value for value in told.values() if isinstance(value, int) and not isinstance(value, bool)]
    kinds, offsets, seen = [], [], {0: 0, 1: 0, 2: 0}
    for value in told.values():
        kind = 0 if isinstance(value, str) else 1 if isinstance(value, bool) else 2
        kinds.append(kind)
        offsets.append(seen[kind])
        seen[kind] += 1
    children = [
        pa.array(texts, pa.string()),
        pa.array(truths, pa.bool_()),
        pa.array(numbers, pa.int64()),
        pa.array([], pa.int32()),
        pa.array([], pa.list_(pa.string())),
        pa.array([], pa.map_(pa.int32(), pa.list_(pa.int32()))),
    ]
    names = ["string_value", "bool_value", "bigint_value", "int32_bitmask", "string_list", "int32_to_int32_list_map"]
    values = pa.UnionArray.from_dense(pa.array(kinds, pa.int8()), pa.array(offsets, pa.int32()), children, names)
    return pa.table({"info_name": pa.array(list(told), pa.uint32()), "value": values})
