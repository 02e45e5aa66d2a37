"""Share the servers of a test run: each starts when a test first asks for it, and stops at the end.

It does not hold what only one test file needs.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

from tests.support.servers import S3Server, fresh_database, postgres_server, seaweedfs_server
from tests.support.sparks import spark_session
from tidelake.objects import ObjectStore, open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

settings.register_profile("repeatable", derandomize=True, deadline=None)  # a red run must be red again
settings.load_profile("repeatable")


class ByFile(LoadScopeScheduling):  # type: ignore[misc]  # xdist ships no types
    """Keep a file's tests in one process, and all files that need Spark in one, so that there is one session."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return "spark" if _needs_spark(file) else file


@cache
def _needs_spark(file: str) -> bool:
    text = (Path(__file__).parents[1] / file).read_text()
    return re.search(r"spark: SparkSession|\(\"spark\"\)", text) is not None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFile:
    """Choose which process runs what."""
    return ByFile(config, log)


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """Give the URL of a PostgreSQL server."""
    with postgres_server() as url:
        yield url


@pytest.fixture
def postgres_database(postgres: str) -> str:
    """Give the URL of an empty PostgreSQL database."""
    return fresh_database(postgres)


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    """Give an S3 server."""
    with seaweedfs_server() as server:
        yield server


@pytest.fixture
def local_store(tmp_path: Path) -> ObjectStore:
    """Give an empty store in a folder."""
    return open_store(tmp_path / "lake")


@pytest.fixture
def memory_store() -> ObjectStore:
    """Give an empty store in memory."""
    return open_store("memory://")


@pytest.fixture
def s3_store(s3: S3Server) -> ObjectStore:
    """Give an empty store in a bucket."""
    return s3.open(f"test-{secrets.token_hex(6)}")


@pytest.fixture(params=["local", "memory", "s3"])
def store(request: pytest.FixtureRequest) -> ObjectStore:
    """Give an empty store, of each sort in turn."""
    found: ObjectStore = request.getfixturevalue(f"{request.param}_store")
    return found


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Give the one Spark session of a run."""
    with spark_session() as session:
        yield session
