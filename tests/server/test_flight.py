"""Arrow Flight SQL by ADBC's own driver, unmodified, and plain Flight."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import adbc_driver_flightsql
import adbc_driver_flightsql.dbapi as dbapi
import pyarrow as pa
import pyarrow.flight as flight
import pytest

import tidelake
from tests.support.serving import Served, serving
from tidelake.server.access import create_token
from tidelake.server.flight_words import handle, is_like, message, wrapped

ROWS = 100_000
HEADER = adbc_driver_flightsql.DatabaseOptions.AUTHORIZATION_HEADER.value


@pytest.fixture(scope="module")
def lake_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("flight") / "lake"
    with tidelake.connect(place, upkeep=False) as lake:
        for name in ("obs.logs", "other.logs"):
            lake.create_table(name, {"ts": "timestamp", "service": "string", "n": "long"}).append(
                pa.table(
                    {
                        "ts": pa.array(range(ROWS), pa.timestamp("us", tz="UTC")),
                        "service": pa.array([f"s{n % 3}" for n in range(ROWS)]),
                        "n": pa.array(range(ROWS), pa.int64()),
                    }
                )
            )
    return place


@pytest.fixture(scope="module")
def connection(served: Served) -> Iterator[Any]:
    with dbapi.connect(f"grpc://{served.flight}", autocommit=True) as opened:
        yield opened


def test_statements_are_answered_in_arrow(connection: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute("select service, count(*) c, sum(n) s from obs.logs group by service order by service")
        rows = cursor.fetch_arrow_table().to_pylist()
        assert [row["service"] for row in rows] == ["s0", "s1", "s2"]
        assert sum(row["c"] for row in rows) == ROWS
        cursor.execute("select * from obs.logs")
        assert cursor.fetch_arrow_table().num_rows == ROWS


def test_prepared_statements_take_values(connection: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute("select n, service from obs.logs where n = ? and service = ?", (7, "s1"))
        assert cursor.fetchall() == [(7, "s1")]
        for value, found in ((8, [(8,)]), (None, []), (9.0, [(9,)]), (10, [(10,)])):  # the driver prepares it once
            cursor.execute("select n from obs.logs where n = ?", (value,))
            assert cursor.fetchall() == found
        cursor.execute("select ? as hostile", ("' or '1'='1",))
        assert cursor.fetchall() == [("' or '1'='1",)]


def test_what_there_is(connection: Any) -> None:
    found = connection.adbc_get_objects(depth="tables").read_all().to_pylist()
    assert [each["catalog_name"] for each in found] == ["tidelake"]
    schemas = {each["db_schema_name"]: each["db_schema_tables"] for each in found[0]["catalog_db_schemas"]}
    assert [table["table_name"] for table in schemas["obs"]] == ["logs"]
    columns = connection.adbc_get_objects(depth="all", db_schema_filter="obs").read_all().to_pylist()
    tables = columns[0]["catalog_db_schemas"][0]["db_schema_tables"]
    assert [column["column_name"] for column in tables[0]["table_columns"]] == ["ts", "service", "n"]
    assert connection.adbc_get_table_types() == ["TABLE"]
    assert connection.adbc_get_info()["vendor_name"] == "tidelake"


def test_rows_are_ingested(connection: Any, reader: tidelake.Lake) -> None:
    rows = pa.table({"ts": pa.array([datetime(2026, 1, 1, tzinfo=UTC)] * 3), "n": [1, 2, 3]})
    with connection.cursor() as cursor:
        assert cursor.adbc_ingest("fresh", rows, mode="create_append", db_schema_name="obs") == 3
        assert cursor.adbc_ingest("fresh", rows, mode="append", db_schema_name="obs") == 3
        with pytest.raises(dbapi.Error):
            cursor.adbc_ingest("fresh", rows, mode="create", db_schema_name="obs")
        with pytest.raises(dbapi.Error):
            cursor.adbc_ingest("nowhere", rows, mode="append", db_schema_name="obs")
    assert len(reader.table("obs.fresh")) == 6


def test_a_tables_columns_are_those_of_its_rows(connection: Any) -> None:
    columns = {
        "ts": pa.array([datetime(2026, 1, 1, tzinfo=UTC)]), "day": pa.array([date(2026, 1, 1)]), "tags": [["a"]],
        "price": pa.array([Decimal("1.50")], pa.decimal128(10, 2)), "said": pa.array(['{"a": 1}'], pa.json_()),
    }  # fmt: skip
    with connection.cursor() as cursor:
        cursor.adbc_ingest("typed", pa.table(columns), mode="create", db_schema_name="other")
        cursor.execute("select * from other.typed")
        assert cursor.fetch_arrow_table().schema == connection.adbc_get_table_schema("typed", db_schema_filter="other")


@pytest.mark.parametrize(
    "text", ["select nope from obs.logs", "select * from obs.nope", "selec", "select * from read_csv('/etc/passwd')"]
)
def test_mistakes_are_errors_in_words(connection: Any, text: str) -> None:
    with connection.cursor() as cursor, pytest.raises(dbapi.Error) as refused:
        cursor.execute(text)
    assert "Traceback" not in str(refused.value)


def test_a_table_by_its_name_alone(served: Served) -> None:
    with flight.connect(f"grpc://{served.flight}") as client:
        assert client.do_get(flight.Ticket(b"obs.logs")).read_all().num_rows == ROWS
        assert "obs.logs" in [info.descriptor.path[0].decode() for info in client.list_flights()]
        for garbage in (b"", b"\n\xff", b"../x", b"obs.logs; drop", b"\n\x05abcde"):
            with pytest.raises((pa.ArrowException, flight.FlightError)):
                client.do_get(flight.Ticket(garbage)).read_all()


def test_a_token_is_needed_and_reaches_its_own(tmp_path_factory: pytest.TempPathFactory, lake_folder: Path) -> None:
    import shutil

    place = tmp_path_factory.mktemp("guarded") / "lake"
    shutil.copytree(lake_folder, place)
    with tidelake.connect(place, upkeep=False) as lake:
        token = create_token(lake.store, "obs", roles=["read"], namespaces=["obs"])[0]
    with serving(place) as server:
        address = f"grpc://{server.flight}"
        unknown = {HEADER: "Bearer tl_000000000000_" + "x" * 43}
        for kwargs in ({}, unknown):
            with pytest.raises(dbapi.Error), dbapi.connect(address, kwargs, autocommit=True) as refused:
                refused.cursor().execute("select 1")
        for kwargs in (
            {HEADER: f"Bearer {token}"},
            {"username": "any", "password": token},
        ):
            with dbapi.connect(address, kwargs, autocommit=True) as opened, opened.cursor() as cursor:
                cursor.execute("select count(*) from logs")
                assert cursor.fetchall() == [(ROWS,)]
                with pytest.raises(dbapi.Error):
                    cursor.execute("select count(*) from other.logs")
                names = opened.adbc_get_objects(depth="db_schemas").read_all().to_pylist()[0]["catalog_db_schemas"]
                assert [each["db_schema_name"] for each in names] == ["obs"]
                with pytest.raises(dbapi.Error):
                    cursor.adbc_ingest("x", pa.table({"ts": [datetime(2026, 1, 1, tzinfo=UTC)]}), mode="create")


def info_of(client: Any, sql: str) -> Any:
    told = wrapped("CommandStatementQuery", message({1: sql.encode()}))
    return client.get_flight_info(flight.FlightDescriptor.for_command(told))


def test_columns_are_known_without_running_a_statement(served: Served) -> None:
    endless = "select count(*) c from range(3000000) a, range(3000000) b where a.id * b.id = 7"
    with flight.connect(f"grpc://{served.flight}") as client, served.client() as http:
        assert info_of(client, endless).schema == pa.schema([pa.field("c", pa.int64())])
        assert info_of(client, "select max(n) m from obs.logs").schema == pa.schema([pa.field("m", pa.int64())])
        assert info_of(client, "select * from obs.logs").schema.names == ["ts", "service", "n"]
        assert http.get("/v1/queries").json() == {"queries": []}


def test_parts_of_a_table_are_its_rows_whoever_answers(served: Served) -> None:
    sql = "select n, service from obs.logs where n >= 10"
    with flight.connect(f"grpc://{served.flight}") as client:
        found = []
        for part in range(3):
            told = {"sql": sql, "at": {"obs.logs": 2}, "part": [part, 3]}
            ticket = wrapped("TicketStatementQuery", message({1: handle(told)}))
            found.append(client.do_get(flight.Ticket(ticket)).read_all())
        assert sum(each.num_rows for each in found) == ROWS - 10
        assert sorted(pa.concat_tables(found)["n"].to_pylist()) == list(range(10, ROWS))
        assert sum(each.num_rows > 0 for each in found) > 1
        for wrong in (
            {"sql": "select count(*) from obs.logs", "part": [0, 2]},
            {"sql": sql, "part": [2, 2]},
            {"sql": sql, "part": "x"},
            {"sql": sql, "at": {"obs.logs": "x"}},
            {"sql": sql, "more": 1},
        ):
            ticket = wrapped("TicketStatementQuery", message({1: handle(wrong)}))
            with pytest.raises((pa.ArrowException, flight.FlightError)):
                client.do_get(flight.Ticket(ticket)).read_all()


def test_a_stream_that_is_left_gives_its_turn_back(served: Served) -> None:
    for _ in range(6):  # more than are answered at once
        with flight.connect(f"grpc://{served.flight}") as client:
            ticket = wrapped(
                "TicketStatementQuery", message({1: handle({"sql": "select a.n from obs.logs a, obs.logs b"})})
            )
            stream = client.do_get(flight.Ticket(ticket))
            assert stream.read_chunk().data.num_rows > 0
            stream.cancel()
    with served.client() as http:
        assert http.post("/v1/query", json={"sql": "select 1 one"}).json() == [{"one": 1}]


@pytest.mark.parametrize(
    ("name", "text", "is_so"),
    [
        ("logs", "l%", True),
        ("logs", "_ogs", True),
        ("logs", "%g_", True),
        ("logs", "x%", False),
        ("", "%", True),
        ("a" * 128, "%a" * 60 + "b", False),
        ("logs", "log", False),
        ("a%b", "a%", True),
    ],
)
def test_names_are_like_patterns(name: str, text: str, is_so: bool) -> None:
    assert is_like(name, text) is is_so
