"""Stand in for a lake that is not there, for queries that name no table.

Such a query is answered in this process, and nothing is made on disk. One that looks for a table is told that there is
no lake. It does not hold tables.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, cast
from weakref import WeakSet

from tidelake.catalog import Catalog
from tidelake.errors import NotFoundError, TidelakeError
from tidelake.handle.lake_handle import LakeHandle
from tidelake.lake import Lake
from tidelake.objects import open_store


@contextmanager
def no_lake(where: str, missing: NotFoundError) -> Iterator[Lake]:
    """Lend a lake without a catalog; whoever looked for a table there gets ``missing``, whatever became of it."""
    catalog = _NoCatalog(missing)
    try:
        with Lake(LakeHandle(cast(Catalog, catalog), open_store("memory://"), where)) as lake:
            yield lake
    except TidelakeError as error:
        if catalog.was_asked:
            raise missing from error
        raise


class _NoCatalog:
    """A catalog of which every question is an error; it remembers whether there was one."""

    def __init__(self, missing: NotFoundError) -> None:
        self._missing = missing
        self.was_asked = False
        self.readers: WeakSet[Any] = WeakSet()

    def __getattr__(self, verb: str) -> Any:
        def refuse(*_: object, **__: object) -> NoReturn:
            self.was_asked = True
            raise self._missing

        return refuse

    def close(self) -> None:
        """Close nothing."""
