"""Share the servers and the empty lakes of a test run: each starts when a test first asks for it, and stops at the end.

It does not hold what only one test file needs.
"""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import Phase, settings

import tidelake
import tidelake.lake as lake_module
from tests.support.scheduling import SPARK_TESTS, ByFile
from tests.support.servers import S3Server, fresh_database, postgres_server, seaweedfs_server
from tests.support.sparks import JVM_OPTIONS, spark_session
from tidelake.handle.opening import CACHE_VARIABLE
from tidelake.objects import ObjectStore, open_store

os.environ.setdefault("SPARK_SUBMIT_OPTS", JVM_OPTIONS)
os.environ.setdefault("TIDELAKE_COMPILE", "now")  # or what a test goes through depends on when it is run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PHASES = set(Phase) - {Phase.explain}  # which traces every line that runs, and slows long properties down
settings.register_profile("repeatable", derandomize=True, deadline=None, phases=PHASES)  # a red run is red again
settings.load_profile("repeatable")


lake_module.LOOK_AFTER_S = 1e6  # tests look after their tables themselves, or say when it is to be done


def pytest_configure(config: pytest.Config) -> None:
    """Make the file of ``SPARK_TESTS`` where a run of several processes begins, and a folder for what nodes keep."""
    if not hasattr(config, "workerinput"):
        handle, os.environ[SPARK_TESTS] = tempfile.mkstemp(prefix="tidelake-spark-tests-")
        os.close(handle)
        os.environ[CACHE_VARIABLE] = tempfile.mkdtemp(prefix="tidelake-cache-")


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove that file and that folder."""
    if not hasattr(config, "workerinput"):
        Path(os.environ.pop(SPARK_TESTS)).unlink(missing_ok=True)
        shutil.rmtree(os.environ.pop(CACHE_VARIABLE), ignore_errors=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests that need the Spark session, by the fixtures they ask for: ``pytest -m spark`` runs them alone."""
    marked = [item for item in items if "spark" in getattr(item, "fixturenames", ())]
    for item in marked:
        item.add_marker(pytest.mark.spark)
    if hasattr(config, "workerinput"):
        with Path(os.environ[SPARK_TESTS]).open("a") as file:
            file.write("".join(f"{item.nodeid}\n" for item in marked))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFile:
    """Choose which process runs what."""
    return ByFile(config, log)


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """Yield the URL of a PostgreSQL server."""
    with postgres_server() as url:
        yield url


@pytest.fixture
def postgres_database(postgres: str) -> str:
    """Return the URL of an empty PostgreSQL database."""
    return fresh_database(postgres)


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    """Yield an S3 server."""
    with seaweedfs_server() as server:
        yield server


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[tidelake.Lake]:
    """Yield an empty lake in a folder."""
    with tidelake.connect(tmp_path / "lake") as opened:
        yield opened


@pytest.fixture
def local_store(tmp_path: Path) -> ObjectStore:
    """Return an empty store in a folder."""
    return open_store(tmp_path / "lake")


@pytest.fixture
def memory_store() -> ObjectStore:
    """Return an empty store in memory."""
    return open_store("memory://")


@pytest.fixture
def s3_store(s3: S3Server) -> ObjectStore:
    """Return an empty store in a bucket."""
    return s3.open(f"test-{secrets.token_hex(6)}")


@pytest.fixture(params=["local", "memory", "s3"])
def store(request: pytest.FixtureRequest) -> ObjectStore:
    """Return an empty store, of each sort in turn."""
    found: ObjectStore = request.getfixturevalue(f"{request.param}_store")
    return found


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Yield the one Spark session of a run."""
    with spark_session() as session:
        yield session
