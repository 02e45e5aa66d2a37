"""Keep decoded columns of blocks that are read again and again, up to a share of the machine's memory.

Extents never change, so nothing here goes stale. A column of a block is kept when it is read for the second time, so
that what is read once costs no memory. Once the cache is full, a column takes the place of one that was not read for a
while, and of none else: a scan that goes round through more than fits would otherwise drop each column shortly before
it is needed again. It does not decode, and may be emptied at any time.
"""

from __future__ import annotations

import os
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelake.format import ExtentReader
from tidelake.runtime.forking import renew_after_fork
from tidelake.scan.candidates import Texts
from tidelake.scan.distinct import put_together
from tidelake.scan.path_columns import Path, reads_paths

MEMORY_SHARE = 16  # of the machine's memory, one part
MAX_BYTES = 2 << 30
SEEN_KEPT = 1 << 17  # names of columns that were read once
IDLE_S = 10.0  # after which a column's place may be taken

if TYPE_CHECKING:
    from tidelake.format.postings import Told
    from tidelake.format.shredded import TextRows
    from tidelake.format.template_rows import LinePage, RowTemplates

SMALL_BYTES = 64 << 10  # of what is kept of a block at once, since it is much smaller than the block

_PAGE = "\0&"  # begins the names of pages of lines
_WHOLE = -1  # in place of a block: all of the extent

_Key: TypeAlias = tuple[str, int, str]  # of an extent, the number of a block, the name of a column


class BlockCache:
    """Columns of blocks, by extent, block and name, with a bound on their bytes."""

    def __init__(self, max_bytes: int | None = None) -> None:
        self._max_bytes = _share() if max_bytes is None else max_bytes
        self._clear()
        renew_after_fork(self)

    def renew_after_fork(self) -> None:
        """Let nobody wait for a thread of the parent."""
        self._clear()

    def _clear(self) -> None:
        self._lock = Lock()
        self._kept: OrderedDict[_Key, tuple[Any, int, float]] = OrderedDict()  # the least recently read first
        self._seen: OrderedDict[_Key, None] = OrderedDict()
        self.byte_size = 0

    def found(self, keys: Sequence[_Key]) -> dict[_Key, Any]:
        """Return those of some columns that are kept."""
        now = time.monotonic()
        with self._lock:
            arrays = {key: (held[0], held[1]) for key in keys if (held := self._kept.get(key)) is not None}
            for key, (array, size) in arrays.items():
                self._kept[key] = (array, size, now)
                self._kept.move_to_end(key)
        return {key: array for key, (array, _) in arrays.items()}

    def offer(self, key: _Key, array: Any, *, at_once: bool = False) -> bool:
        """Keep a column, if there is room for it and it was read before, or at once; return whether it is kept now."""
        size = array.nbytes
        with self._lock:
            if key not in self._seen and not at_once:
                self._seen[key] = None
                if len(self._seen) > SEEN_KEPT:
                    self._seen.popitem(last=False)
                return False
            if key in self._kept:
                return True
            if size * 4 > self._max_bytes or not self._has_room(size):
                return False
            self._kept[key] = (array, size, time.monotonic())
            self.byte_size += size
            return True

    def _has_room(self, size: int) -> bool:
        idle = time.monotonic() - IDLE_S
        while self.byte_size + size > self._max_bytes:
            key, (_, oldest, read) = next(iter(self._kept.items()))
            if read > idle:
                return False
            del self._kept[key]
            self.byte_size -= oldest
        return True


def with_cache(reader: ExtentReader, key: str, cache: BlockCache) -> ExtentReader:
    """Return a reader of an extent that takes columns, and values at paths, from the cache where it has them."""
    made = ReadsDistinct(reader, key, cache) if reads_paths(reader) else _KeptReader(reader, key, cache)
    return cast(ExtentReader, made)


class _KeptReader:
    """A reader of an extent whose columns may come from the cache; all else is the reader's own."""

    def __init__(self, reader: Any, key: str, cache: BlockCache) -> None:
        self._reader, self._key, self._cache = reader, key, cache

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)

    def word_count(self, column: str) -> int | None:
        """Return how many texts a column has in all, where the extent keeps them as numbers into a dictionary."""
        count = getattr(self._reader, "word_count", None)
        found: int | None = None if count is None else count(column)
        return found

    def read_block(
        self,
        block: int,
        projection: Sequence[str] | None = None,
        encoded: Collection[str] = (),
    ) -> pa.RecordBatch:
        """Read these columns of a block, or all of them.

        Those ``encoded`` are given, and kept, as their distinct values and a number for each row.
        """
        if not projection:
            return self._reader.read_block(block, projection)
        keys = {name: (self._key, block, f"\0={name}" if name in encoded else name) for name in projection}
        how: dict[str, Any] = {"encoded": encoded} if encoded and hasattr(self._reader, "word_count") else {}
        found = self._cache.found(list(keys.values()))
        missing = [name for name in projection if keys[name] not in found]
        columns = {name: found[key] for name, key in keys.items() if key in found}
        if missing:
            read = self._reader.read_block(block, missing, **how)
            for name, values in zip(read.schema.names, read.columns, strict=True):
                is_plain = name in encoded and not pa.types.is_dictionary(values.type)
                columns[name] = values.dictionary_encode() if is_plain else values
                self._cache.offer(keys[name], columns[name])
        return pa.RecordBatch.from_pydict({name: columns[name] for name in projection})


class ReadsDistinct(_KeptReader):
    """The same of an extent that keeps paths apart, and may keep templates and words of lines."""

    def __init__(self, reader: Any, key: str, cache: BlockCache) -> None:
        super().__init__(reader, key, cache)
        self._kept_names = set[str]()  # of what was kept, at least of one block; by now it may be gone

    @property
    def has_pages(self) -> bool:
        """Whether pages of lines are in memory, likely."""
        return any(name.startswith(_PAGE) for name in self._kept_names)

    def was_searched(self, place: str | Path) -> bool:
        """Whether words of a column, or of the texts at a path, were looked for again, and so are in memory, likely."""
        return (_words_name(place) if isinstance(place, str) else _texts_name(place)) in self._kept_names

    def read_lines(self, column: Texts, rows: Sequence[tuple[int, npt.NDArray[np.int64]]]) -> pa.Array:
        """Read the texts that some rows of some blocks have in a column of templates; these alone are not kept."""
        whole = {(self._key, block, column): places for block, places in rows} if isinstance(column, str) else {}
        if whole and len(found := self._cache.found(list(whole))) == len(whole):
            return pa.concat_arrays([found[key].take(pa.array(places)) for key, places in whole.items()])
        pages = [(self._line_page(block, column), places) for block, places in rows]
        found_lines: pa.Array = self._reader.lines_of(column, pages)
        return found_lines

    def _line_page(self, block: int, column: Texts) -> LinePage:
        """Return the page of the texts of a block, opened: those of lines that are looked for again are kept."""

        def read() -> LinePage:
            known = self._templates_key(block, column)
            page: LinePage = self._reader.line_page(block, column, self._cache.found([known]).get(known))
            return page

        found: LinePage = self._once((self._key, block, f"{_PAGE}{column}"), read)
        return found

    def row_templates(self, block: int, column: Texts) -> RowTemplates:
        """Read which templates the texts of a block have that are stored by templates."""
        found: RowTemplates = self._once(
            self._templates_key(block, column), lambda: self._reader.row_templates(block, column)
        )
        return found

    def template_counts(self, block: int, column: str) -> npt.NDArray[np.int64]:
        """Return how many rows of a block have each template of a column."""
        key = self._counts_key(block, column)
        found: npt.NDArray[np.int64] | None = self._cache.found([key]).get(key)
        if found is None:
            found = self.row_templates(block, column).counts
            self._cache.offer(key, found, at_once=found.nbytes <= SMALL_BYTES)
        return found

    def kept_counts(self, blocks: Sequence[int], column: str) -> npt.NDArray[np.int64] | None:
        """Return the same of some blocks, a row for each, if it is kept of every one."""
        whole = (self._key, _WHOLE, f"\0+{column}")
        every = self._cache.found([whole]).get(whole)
        if every is not None:
            found: npt.NDArray[np.int64] = every[np.asarray(blocks, dtype=np.int64)]
            return found
        keys = [self._counts_key(block, column) for block in blocks]
        kept = self._cache.found(keys)
        if not keys or len(kept) < len(keys):
            return None
        found = np.stack([kept[key] for key in keys])
        if len(keys) == len(self._reader.metadata().blocks):
            self._cache.offer(whole, found, at_once=found.nbytes <= SMALL_BYTES * len(keys))
        return found

    def _counts_key(self, block: int, column: str) -> _Key:
        return (self._key, block, f"\0+{column}")

    def rows_with(self, block: int, column: Texts, tokens: Sequence[str]) -> npt.NDArray[np.bool_] | None:
        """Return which rows of a block may hold all of some tokens; None if there is no telling."""
        if not self._reader.keeps_postings(column):
            return None
        key = (self._key, block, _words_name(column))
        told: Told = self._once(key, lambda: self._reader.read_postings(block, column))
        return told.rows_with(tokens)

    def blocks_without(self, blocks: Sequence[int], column: str, tokens: Sequence[str]) -> frozenset[int]:
        """Return those of some blocks whose postings are in memory and say that no row has all of some tokens."""
        if column not in self._reader.metadata().schema or not self._reader.keeps_postings(column):
            return frozenset()
        name = _words_name(column)
        kept: dict[_Key, Told] = self._cache.found([(self._key, block, name) for block in blocks])
        return frozenset(block for (_, block, _), told in kept.items() if told.lacks(tokens))

    def _templates_key(self, block: int, column: Texts) -> _Key:
        return (self._key, block, f"\0?{column}")

    def _once(self, key: _Key, read: Callable[[], Any]) -> Any:
        """Return what is kept, or read it and offer it to the cache."""
        found = self._cache.found([key]).get(key)
        if found is not None:
            return found
        found = read()
        if self._cache.offer(key, found):
            self._kept_names.add(key[2])
        return found

    def read_paths(
        self, block: int, paths: Sequence[Path], places: npt.NDArray[np.int64] | None = None
    ) -> list[pa.StructArray]:
        """Read what the rows of a block have at paths: all of them, or those at some ascending places.

        Of a path whose texts are stored by templates, the values of some rows are read alone, and not kept.
        """
        keys = {path: (self._key, block, f"\0{path!r}") for path in paths}
        kept = self._cache.found(list(keys.values()))
        found = {path: kept[key] for path, key in keys.items() if key in kept}
        missing = [path for path in paths if path not in found]
        lines = [] if places is None else [path for path in missing if self._reader.keeps_lines(*path)]
        few = dict(zip(lines, self._reader.read_paths(block, lines, places) if lines else (), strict=True))
        whole = [path for path in missing if path not in few]
        for path, array in zip(whole, self._reader.read_paths(block, whole) if whole else (), strict=True):
            self._cache.offer(keys[path], array)
            found[path] = array
        if places is None:
            return [found[path] for path in paths]
        some = {path: array.take(pa.array(places)) for path, array in found.items()}
        return [some[path] if path in some else few[path] for path in paths]

    def text_rows(self, block: int, column: str, path: str) -> TextRows | None:
        """Return which rows of a block have a text at a path; None where no texts at it are templates."""
        if not self._reader.keeps_lines(column, path):
            return None
        key = (self._key, block, _texts_name((column, path)))
        found: TextRows | None = self._once(key, lambda: self._reader.text_rows(block, column, path))
        return found

    def read_distinct(self, block: int, path: Path) -> pa.StructArray | None:
        """Read what the rows of a block have at a path, each once with its count; None if rows hardly repeat."""
        key = (self._key, block, f"\0#{path!r}")
        if self._reader.keeps_lines(*path):  # texts that hardly repeat
            return None
        found = self._cache.found([key]).get(key)
        if found is None:
            found = put_together(self.read_paths(block, [path])[0])
            self._cache.offer(key, pa.nulls(0) if found is None else found, at_once=True)
        return found if found is not None and pa.types.is_struct(found.type) else None

    def kept_distinct(self, path: Path) -> pa.StructArray | None:
        """Return what the rows of the whole extent have at a path, each once with its count, if that is kept."""
        key = (self._key, _WHOLE, f"\0#{path!r}")
        return self._cache.found([key]).get(key)

    def keep_distinct(self, path: Path, found: pa.StructArray) -> None:
        """Keep what the rows of the whole extent have at a path, each once with its count."""
        self._cache.offer((self._key, _WHOLE, f"\0#{path!r}"), found, at_once=True)

    def paths_size(self, block: int, paths: Sequence[Path]) -> int:
        """Return how many bytes that reads, about, if it is not kept."""
        return int(self._reader.paths_size(block, paths))


def was_searched(reader: ExtentReader, places: Collection[str | Path]) -> bool:
    """Whether words of one of some columns, or of texts at paths, were looked for in an extent, and are in memory."""
    return isinstance(reader, ReadsDistinct) and any(map(reader.was_searched, places))


def _words_name(texts: Texts) -> str:
    return f"\0!{texts}"


def _texts_name(path: Path) -> str:
    return f"\0@{path!r}"


def _share() -> int:
    """Return how many bytes may be kept on this machine."""
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return MAX_BYTES // 16
    return int(min(MAX_BYTES, memory // MEMORY_SHARE))
