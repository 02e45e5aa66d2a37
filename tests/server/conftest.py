"""Share a server of an empty lake among the tests of a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

import tidelake
from tests.support.serving import Served, serving


@pytest.fixture(scope="module")
def lake_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the lake that is served."""
    return tmp_path_factory.mktemp("served") / "lake"


@pytest.fixture(scope="module")
def served(lake_folder: Path) -> Iterator[Served]:
    """Yield a server, for all tests of a file."""
    with serving(lake_folder) as server:
        yield server


@pytest.fixture(scope="module")
def client(served: Served) -> Iterator[httpx.Client]:
    """Yield a client of that server."""
    with served.client() as opened:
        yield opened


@pytest.fixture
def reader(served: Served, lake_folder: Path) -> Iterator[tidelake.Lake]:
    """Yield the lake that is served, as another process sees it."""
    with tidelake.connect(lake_folder, upkeep=False) as opened:
        yield opened
