"""Arrow Flight SQL by ADBC's own driver, unmodified, and plain Flight."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
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
