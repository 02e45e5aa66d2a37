"""Plant passwords and keys wherever one can be given, and search everything that is shown or stored for them.

It does not test that secrets work: the suites of the stores and catalogs do.
"""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

import tidelake
from tests.support.servers import S3Server
from tidelake.cli.main import main
from tidelake.errors import InvalidInputError, redacted
from tidelake.objects import ObjectStore, open_store
from tidelake.spark.places import Place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PLANTED = "Pl4nted-S3cret"
ROWS = [{"ts": "2026-03-14T12:00:00Z", "service": "auth", "n": n} for n in range(3)]


def planted(url: str) -> str:
    """Return a server's address with a password in it, which it does not ask for."""
    return url.replace("postgres@", f"postgres:{PLANTED}@")


@contextmanager
def seen(*, kind: type[BaseException] = Exception) -> Iterator[list[str]]:
    """Collect the whole traceback of an error, with what it was raised from."""
    texts: list[str] = []
    try:
        yield texts
    except kind as error:
        texts += ["".join(traceback.format_exception(error)), repr(error)]
        if isinstance(error, tidelake.TidelakeError):
            texts.append(str(pickle.loads(pickle.dumps(error))))
        while (cause := error.__cause__ or error.__context__) is not None:
            error = cause
            texts += [str(error), repr(error)]
    else:
        pytest.fail("nothing was raised")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://u:pw@host/db", "postgresql://u:***@host/db"),
        ("postgresql://u:p@w/x@host/db", "postgresql://u:***@host/db"),
        ("postgresql://host/db?user=u&password=pw&sslmode=off", "postgresql://host/db?user=u&password=***&sslmode=off"),
        ("host=h password='p w' user=u", "host=h password=*** user=u"),
        ("s3://key:pw@bucket", "s3://key:***@bucket"),
        ("https://x.net/c?sv=1&sig=abc%2F&se=2", "https://x.net/c?sv=1&sig=***&se=2"),
        ("secretKey=abc, accessKey=visible", "secretKey=***, accessKey=visible"),
        ("http://host:8333/path and user@example", "http://host:8333/path and user@example"),
        ("a plain sentence = fine", "a plain sentence = fine"),
    ],
)
def test_redacted_hides_passwords_and_nothing_else(text: str, shown: str) -> None:
    assert redacted(text) == shown


@pytest.mark.parametrize(
    "attempt",
    [
        lambda: tidelake.connect(f"mysql://u:{PLANTED}@host/db"),
        lambda: tidelake.connect(f"postgresql://u:{PLANTED}@127.0.0.1:1/db"),
        lambda: tidelake.connect(f"postgresql://u:{PLANTED}@127.0.0.1:1/db", objects="memory://"),
        lambda: tidelake.connect(f"postgresql://u:{PLANTED}@host:none/db?colour=blue", objects="memory://"),
        lambda: tidelake.connect(f"postgresql://127.0.0.1:1/db?user=u&password={PLANTED}", objects="memory://"),
        lambda: tidelake.connect(f"log:gs://u:{PLANTED}@host/x"),
        lambda: tidelake.connect("lake", objects=f"s3://key:{PLANTED}@bucket/p"),
        lambda: tidelake.connect("lake", secret=PLANTED),
        lambda: open_store(f"azure://u:{PLANTED}@host/x"),
        lambda: open_store("s3://bucket", endpoint=f"ftp://u:{PLANTED}@host", key="k", secret=PLANTED),
        lambda: open_store("s3://bucket", endpoint="http://127.0.0.1:1", key="k", secret=PLANTED).get("a"),
        lambda: open_store("s3://bucket", endpoint=f"http://u:{PLANTED}@127.0.0.1:1", key="k", secret="s").get("a"),
        lambda: Place(f"mysql://u:{PLANTED}@host/db", secret_key=PLANTED).open(),
    ],
)  # fmt: skip
def test_an_error_about_a_place_shows_no_secret(
    attempt: Callable[[], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with seen() as texts:
        attempt()
    assert PLANTED not in "\n".join(texts)


def test_a_password_with_a_bare_at_sign_is_refused_without_showing_any_part_of_it() -> None:
    with seen(kind=InvalidInputError) as texts:
        tidelake.connect(f"postgresql://u:first@{PLANTED}@127.0.0.1:1/db", objects="memory://")
    assert "%40" in texts[0]
    assert PLANTED not in "\n".join(texts)


def test_a_lake_behind_a_password_shows_it_nowhere(postgres_database: str, tmp_path: Path) -> None:
    address = planted(postgres_database)
    with tidelake.connect(address, objects=tmp_path / "objects") as lake:
        table = lake.create_table("obs.logs", {"ts": "timestamp", "service": "string", "n": "long"})
        report = table.append(ROWS, key="first")
        table.flush()
        asked = lake.sql("select service, sum(n) as n from obs.logs group by service")
        shown = [
            *map(repr, (lake, table, report, asked, lake.catalog, lake.store, table.history(), table.extents())),
            lake.where, table.lake, asked.explain(), table.plan(where="n > 1").explain(), repr(Place.of_lake(lake)),
        ]  # fmt: skip
        with seen() as texts:
            lake.table("obs.nothing")
        with seen() as more:
            lake.sql("select nothing from obs.logs")
    assert PLANTED not in "\n".join([*shown, *texts, *more])
    assert Place.of_lake(lake).lake == address  # other processes still can open it
    assert_nowhere_in(tmp_path)


def assert_nowhere_in(folder: Path) -> None:
    holding = [path for path in folder.rglob("*") if path.is_file() and PLANTED.encode() in path.read_bytes()]
    assert holding == []


@pytest.mark.parametrize(
    "command",
    [
        ["init"],
        ["tables"],
        ["tables", "--json"],
        ["describe", "obs.logs"],
        ["describe", "obs.nothing"],
        ["history", "obs.logs"],
        ["extents", "obs.logs", "--json"],
        ["query", "obs.logs | count"],
        ["query", "obs.nothing | count"],
        ["explain", "obs.logs | where n == 1"],
    ],
)
def test_no_command_shows_the_password_of_its_lake(command: list[str], postgres_database: str, tmp_path: Path) -> None:
    places = ["--lake", planted(postgres_database), "--objects", str(tmp_path)]
    with tidelake.connect(places[1], objects=tmp_path) as lake:
        lake.create_table("obs.logs", {"ts": "timestamp", "n": "long"}).append([{"ts": ROWS[0]["ts"], "n": 1}])
    result = CliRunner().invoke(main, [command[0], *places, *command[1:]])
    said = result.output + repr(result.exception) + "".join(traceback.format_exception(result.exception))
    assert result.exit_code in (0, 1), said
    assert PLANTED not in said


def test_a_bucket_shows_its_secret_nowhere(s3: S3Server, tmp_path: Path) -> None:
    store: ObjectStore = s3.open("secrets-shown")
    lake = tidelake.connect(tmp_path / "lake", objects=store.url, endpoint=s3.endpoint, key=s3.key, secret=s3.secret)
    with lake:
        table = lake.create_table("obs.logs", {"ts": "timestamp", "n": "long"})
        table.append([{"ts": ROWS[0]["ts"], "n": 1}])
        table.flush()
        place = Place.of_lake(lake)
        shown = [repr(lake), repr(lake.store), repr(lake.store.__dict__), repr(place), repr(place.outside)]
        shown += [repr(table.__dict__), table.plan().explain()]
    assert s3.secret not in "\n".join(shown)
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and s3.secret.encode() in path.read_bytes()]


def test_spark_shows_no_secret_in_plans_tables_or_errors(
    spark: SparkSession, postgres_database: str, s3: S3Server, tmp_path: Path
) -> None:
    address = planted(postgres_database)
    store = s3.open("secrets-spark")
    with tidelake.connect(address, objects=store.url, endpoint=s3.endpoint, key=s3.key, secret=s3.secret) as lake:
        lake.create_table("obs.logs", {"ts": "timestamp", "service": "string", "n": "long"}).append(ROWS)
        options = {**Place.of_lake(lake).options(), "table": "obs.logs"}
        frame = spark.read.format("tidelake").options(**options).load().where("n > 0")
        assert frame.count() == 2
        java = frame._jdf.queryExecution()
        shown = [java.toString(), java.optimizedPlan().toString(), java.executedPlan().toString(), repr(frame)]
        shown.append(tidelake.spark.explain(frame))
        frame.createOrReplaceTempView("planted")
        listed = ", ".join(f"{name} '{value}'" for name, value in options.items())
        spark.sql(f"CREATE TABLE planted_table USING tidelake OPTIONS ({listed})")
        try:
            for question in ("DESCRIBE TABLE EXTENDED planted_table", "SHOW CREATE TABLE planted_table"):
                shown += [str(row) for row in spark.sql(question).collect()]
            assert spark.table("planted_table").count() == 3
        finally:
            spark.sql("DROP TABLE planted_table")
        with seen() as texts:
            spark.read.format("tidelake").options(**options | {"table": "obs.nothing"}).load().count()
    said = "\n".join([*shown, *texts])
    assert [secret for secret in (PLANTED, s3.secret) if secret in said] == []
