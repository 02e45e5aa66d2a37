"""Own the bytes of the third body: columns in codecs of their own, and dynamic columns in the columns of their leaves.

::

    "KYMA" 03 | block … | dictionaries | templates | postings | directories | footer | u32 its length | "KYMA" 03
    block:      the page of a column | the page of a column …

The footer is that of v2, compressed: for each block the bounds that every reader knows in ``cols``, and in ``tide``
for each column where its page lies, its checksum and the richer statistics. The last entry's ``extent`` says also
where the ``dictionaries``, ``templates`` and ``postings`` of text columns and the directories of ``shredded`` ones
lie, and which columns are ``differences`` from which others. There is no byte between the magics that is not under a
checksum. ``docs/format.md`` is the specification, ``codecs`` has the pages, ``differences`` those of two columns,
``templates`` the lines of logs, ``postings`` which rows hold which words, ``shredded`` the dynamic columns. It does
not decide which key or id an extent has.
"""

from __future__ import annotations

import pickle
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelake.errors import CorruptExtent
from tidelake.format import codecs, differences
from tidelake.format.block_format import BlockFormat, opening
from tidelake.format.frame import (
    FRAME_TAIL,
    MAGIC_BYTES,
    EntryPlaces,
    checked_entry,
    footer_bytes_of,
    parsed_footer,
    unpacked_footer,
)
from tidelake.format.segment import (
    TAIL_BYTES,
    BlockInfo,
    EntryColumns,
    ExtentMetadata,
    PartInfo,
    PieceInfo,
    SharedPiece,
    SharedPlaces,
    block_of,
    checksum_of,
    chosen_columns,
    piece_of,
    read_columns,
    reason_of,
    slim_blocks,
    surviving_blocks,
)
from tidelake.format.tlm3_writing import MAGIC_V3, encode
from tidelake.kernels.tokens import Run
from tidelake.model.predicate import Predicate
from tidelake.model.schema import Column, Schema
from tidelake.objects import ObjectStore
from tidelake.pruning.statistics import Stats
from tidelake.runtime.deferred import deferred

if TYPE_CHECKING:
    from tidelake.format import (
        dictionaries,
        leaf_lines,
        postings,
        shredded,
        template_pages,
        template_rows,
        template_search,
        templates,
    )
else:
    shredded, dictionaries = deferred("tidelake.format.shredded"), deferred("tidelake.format.dictionaries")
    templates, postings = deferred("tidelake.format.templates"), deferred("tidelake.format.postings")
    template_search = deferred("tidelake.format.template_search")
    template_rows, template_pages = (
        deferred("tidelake.format.template_rows"),
        deferred("tidelake.format.template_pages"),
    )

NAME = "tlm3"

Texts: TypeAlias = str | tuple[str, int]  # those of a column, or of a leaf of a dynamic one

_MIN_BYTES = MAGIC_BYTES + FRAME_TAIL


class Tlm3Reader:
    """Read one extent of v3 by range."""

    def __init__(self, store: ObjectStore, key: str, parts: _Parts | None = None) -> None:
        self._store, self._key = store, key
        with opening(key):
            self._parts = parts or _open(store, key)
        self._lock = Lock()
        self._directories: dict[str, shredded.Directory] = {}
        self._dictionaries: dict[tuple[str, int], pa.Array] = {}
        self._templates: dict[Texts, template_pages.Dictionary] = {}
        self._metadata: ExtentMetadata | None = None

    def metadata(self) -> ExtentMetadata:
        if self._metadata is None:
            self._metadata = self._described()
        return self._metadata

    def _described(self) -> ExtentMetadata:
        parts = self._parts
        return ExtentMetadata(
            format=NAME,
            version=3,
            extent_id=parts.extent_id,
            schema=parts.schema,
            row_count=sum(block.stats.rows for block in parts.blocks),
            byte_size=parts.byte_size,
            footer_bytes=parts.footer_bytes,
            checksummed=True,
            blocks=tuple(parts.blocks),
        )

    def pruned_blocks(self, predicate: Predicate | None) -> list[int]:
        return surviving_blocks(self._parts.blocks, predicate)

    def read_block(
        self,
        block: int,
        projection: Sequence[str] | None = None,
        encoded: Collection[str] = (),
    ) -> pa.RecordBatch:
        """Read these columns of a block.

        Of those ``encoded`` that the extent has a dictionary for, texts are given as numbers into it.
        """
        info = block_of(self._parts.blocks, block, self._key)
        columns = chosen_columns(self._parts.schema, projection)
        told, bases = self._parts.differences, dict[str, pa.Array]()
        needed = dict.fromkeys(told[column.name] for column in columns if column.name in told)

        def decode(column: Column, piece: PieceInfo, data: pa.Buffer) -> pa.Array:
            found = decode_alone(column, piece, data)
            if column.name in needed:
                bases[column.name] = found
            return found

        def decode_alone(column: Column, piece: PieceInfo, data: pa.Buffer) -> pa.Array:
            rows, kind = info.stats.rows, column.type.arrow
            if column.type.kind == "dynamic":
                return self._block_pages(column.name, block, rows, partial(_slices, data)).whole()
            if column.name in self._parts.templates:
                return templates.decode_column(memoryview(data), rows, self._line_dictionary(column.name))
            if column.name in told:
                return differences.decode(memoryview(data), rows, kind, bases[told[column.name]])
            found = codecs.decode_column(memoryview(data), rows, kind, self._column_dictionary(column.name))
            if pa.types.is_dictionary(found.type) and column.name not in encoded:
                return found.dictionary_decode()
            return found

        read = partial(read_columns, self._store, self._key, block=block, info=info, decode=decode, encoded=encoded)
        if not needed:
            return read(columns)
        first = [self._parts.schema[name] for name in needed]
        whole = read(first + [column for column in columns if column.name not in needed])
        return whole.select([column.name for column in columns])

    def read_paths(
        self, block: int, paths: Sequence[tuple[str, str]], places: npt.NDArray[np.int64] | None = None
    ) -> list[pa.StructArray]:
        """Read what rows of a block have at paths of dynamic columns, in the form of ``dynamic.path_values``.

        It is of all rows, or of those at some ascending places.
        """
        info = block_of(self._parts.blocks, block, self._key)
        opened: dict[str, shredded.BlockPages] = {}
        found = []
        for name, path in paths:
            with self._readable(block, name):
                if name not in opened:
                    opened[name] = self._pages(name, block, info)
                found.append(opened[name].at_path(path, places))
        return found

    def text_rows(self, block: int, column: str, path: str) -> shredded.TextRows | None:
        """Return which rows of a block have a text at a path; None where no texts at it are templates."""
        if not self.keeps_lines(column, path):
            return None
        info = block_of(self._parts.blocks, block, self._key)
        with self._readable(block, column):
            return self._pages(column, block, info).text_rows(path)

    def keeps_words(self, place: str | tuple[str, str]) -> bool:
        """Whether words or templates of a column, or of the texts at a path, are kept."""
        if isinstance(place, str):
            return place in self._parts.templates or place in self._parts.postings
        return self.keeps_lines(*place)

    def keeps_lines(self, column: str, path: str) -> bool:
        """Whether texts at a path of a dynamic column are stored by templates, and nothing else can have the path."""
        return column in self._parts.shredded and self._directory(column).keeps_lines(path)

    def paths_size(self, block: int, paths: Sequence[tuple[str, str]]) -> int:
        """Return how many bytes of a block the values at paths take, about: dictionaries are not counted."""
        return sum(self._directory(name).path_bytes(block, path) for name, path in paths)

    def word_count(self, column: str) -> int | None:
        """Return how many texts a column has in all, where they are kept as numbers into a dictionary."""
        place = self._parts.dictionaries.get(column)
        return None if place is None else place[1]

    def read_lines(self, texts: Texts, rows: Sequence[tuple[int, npt.NDArray[np.int64]]]) -> pa.Array:
        """Read some of the texts of some blocks that are stored by templates, by their ascending places in each."""
        return self.lines_of(texts, [(self.line_page(block, texts), places) for block, places in rows])

    def line_page(
        self, block: int, texts: Texts, known: template_rows.RowTemplates | None = None
    ) -> template_rows.LinePage:
        """Read the page of texts of a block; ``known`` are its templates, if they were read before."""
        with self._readable(block, _column_of(texts)):
            rows, data = self._line_page(block, texts)
            return template_rows.LinePage(data, rows, self._line_dictionary(texts), known)

    def lines_of(self, texts: Texts, pages: Sequence[tuple[template_rows.LinePage, npt.NDArray[np.int64]]]) -> pa.Array:
        """Return some of the texts of pages that were read, by their ascending places in each."""
        with self._readable(None, _column_of(texts)):
            return template_rows.texts_of(pages, self._line_dictionary(texts))

    def lines(self, texts: Texts) -> template_pages.Dictionary | None:
        """Return the templates that texts have; None if they are not stored by templates."""
        if isinstance(texts, str):
            return self._line_dictionary(texts) if texts in self._parts.templates else None
        column, leaf = texts
        return self._line_dictionary(texts) if leaf in self._directory(column).lines else None

    def row_templates(self, block: int, texts: Texts) -> template_rows.RowTemplates:
        """Read which templates the texts of a block have that are stored by templates."""
        with self._readable(block, _column_of(texts)):
            rows, data = self._head(block, texts) if isinstance(texts, str) else self._line_page(block, texts)
            return template_rows.decode_rows(data, rows, self._line_dictionary(texts))

    def keeps_postings(self, texts: Texts) -> bool:
        """Whether it is told which rows hold which tokens of texts."""
        if isinstance(texts, str):
            return texts in self._parts.postings
        column, leaf = texts
        held = self._directory(column).lines.get(leaf)
        return held is not None and any(held.postings)

    def read_postings(self, block: int, texts: Texts) -> postings.Told:
        """Read which rows of a block, or values of a leaf, may hold which tokens; there are postings."""
        info, column = block_of(self._parts.blocks, block, self._key), _column_of(texts)
        with self._readable(block, column):
            if isinstance(texts, str):
                rows, piece = info.stats.rows, self._parts.postings[texts][block]
            else:
                known, leaf = self._directory(column), texts[1]
                page, place = known.blocks[block].get(leaf), known.lines[leaf].postings[block]
                if page is None or place is None:
                    raise ValueError(f"a block without postings of leaf {leaf}, which has some")
                rows, piece = page.values, _piece(place)
            return postings.Told.of(memoryview(self._verified(piece, column)), rows)

    def rows_with(self, block: int, texts: Texts, tokens: Sequence[str]) -> npt.NDArray[np.bool_] | None:
        """Return which rows of a block may hold all of some tokens; None if there is no telling."""
        return self.read_postings(block, texts).rows_with(tokens) if self.keeps_postings(texts) else None

    def rows_holding(self, block: int, texts: Texts, runs: Sequence[Run]) -> npt.NDArray[np.bool_] | None:
        """Return which rows of a block hold all of some words or parts; None if there is no telling at once."""
        if self.lines(texts) is None:
            return None
        with self._readable(block, _column_of(texts)):
            (rows, data), own = self._line_page(block, texts), self._line_dictionary(texts)
            told = [template_search.rows_holding(data, rows, own, run) for run in runs]
        known = [found for found in told if found is not None]
        return np.logical_and.reduce(known) if known else None

    def read_templates(self, block: int, column: str) -> pa.DictionaryArray | None:
        """Read the templates of a block's texts, as ``message_template`` has them; None if they are not stored."""
        held = self._parts.templates.get(column)
        if held is None or held.every_word:
            return None
        with self._readable(block, column):
            rows, data = self._head(block, column)
            return templates.decode_shown(data, rows, self._line_dictionary(column))

    def _head(self, block: int, column: str) -> tuple[int, memoryview]:
        """Return how many rows a block has, and the bytes that tell their templates."""
        info = block_of(self._parts.blocks, block, self._key)
        length, checksum = self._parts.templates[column].heads[block]
        place = PieceInfo(info.pieces[column].offset, length, checksum)
        return info.stats.rows, memoryview(self._verified(place, column))

    def _line_page(self, block: int, texts: Texts) -> tuple[int, memoryview]:
        """Return how many rows, or values of a leaf, a block has, and their page of templates."""
        info = block_of(self._parts.blocks, block, self._key)
        if isinstance(texts, str):
            return info.stats.rows, memoryview(self._verified(info.pieces[texts], texts))
        column, leaf = texts
        return self._pages(column, block, info).line_page(leaf)

    def parts(self) -> list[PartInfo]:
        """Return what columns consist of: pages and dictionaries, and of dynamic ones the columns of their leaves."""
        found: list[PartInfo] = []
        for column in self._parts.schema:
            name = column.name
            pieces = [block.pieces[name] for block in self._parts.blocks]
            data = [memoryview(self._verified(piece, name)) for piece in pieces]
            if column.type.kind == "dynamic":
                found += shredded.parts_of(name, self._directory(name), data, self._parts.shredded[name].length)
                continue
            rows = sum(block.stats.rows for block in self._parts.blocks)
            used = tuple(dict.fromkeys(map(codecs.codec_name, data)))
            found.append(PartInfo(name, "values", None, used, rows, sum(map(len, data))))
            if (held := self._parts.templates.get(name)) is not None:
                for what, (piece, count) in (("templates", held.templates), ("words", held.words)):
                    codec = codecs.codec_name(memoryview(self._verified(piece, name)))
                    found.append(PartInfo(name, what, None, (codec,), count, piece.length))
            if (places := self._parts.postings.get(name)) is not None:
                found.append(PartInfo(name, "postings", None, (), rows, sum(each.length for each in places)))
            if (place := self._parts.dictionaries.get(name)) is not None:
                words = codecs.codec_name(memoryview(self._verified(place[0], name)))
                found.append(PartInfo(name, "dictionary", None, (words,), place[1], place[0].length))
        return found

    def shared_pieces(self) -> list[SharedPiece]:
        """Return all bytes that have a checksum beside the pieces of blocks; a damaged directory alone."""
        parts = self._parts
        found = [SharedPiece(name, "dictionary", None, piece) for name, (piece, _) in parts.dictionaries.items()]
        for name, held in parts.templates.items():
            found += [SharedPiece(name, "templates", None, held.templates[0])]
            found += [SharedPiece(name, "words", None, held.words[0])]
        for name, places in parts.postings.items():
            found += [SharedPiece(name, "postings", block, piece) for block, piece in enumerate(places)]
        for name, piece in parts.shredded.items():
            found.append(SharedPiece(name, "directory", None, piece))
            with suppress(CorruptExtent):
                known = self._directory(name)
                found += [SharedPiece(name, "dictionary", None, _piece(place)) for place in known.dictionaries.values()]
                for lines in known.lines.values():
                    found.append(SharedPiece(name, "templates", None, _piece(lines.templates)))
                    found.append(SharedPiece(name, "words", None, _piece(lines.words)))
                    listed = enumerate(lines.postings)
                    found += [SharedPiece(name, "postings", block, _piece(place)) for block, place in listed if place]
        return found

    def shared_places(self, column: str) -> SharedPlaces:
        """Return what the pages of a column refer to."""
        held, base = self._parts.templates.get(column), self._parts.differences.get(column)
        if held is not None:
            return SharedPlaces(templates=held.templates, words=held.words)
        return SharedPlaces(dictionary=self._parts.dictionaries.get(column), base=base)

    def ticket(self, blocks: Collection[int], columns: Collection[str]) -> bytes:
        return pickle.dumps(self._parts.slim(blocks, columns), pickle.HIGHEST_PROTOCOL)

    def directory(self, column: str) -> shredded.Directory:
        """Return what is known of the leaves of a dynamic column."""
        return self._directory(column)

    @contextmanager
    def _readable(self, block: int | None, name: str) -> Iterator[None]:
        """Call bytes that do not decode corrupt."""
        try:
            yield
        except shredded.ChecksumError as error:
            raise CorruptExtent(
                "checksum mismatch", object=self._key, block=block, column=name, kind="checksum"
            ) from error
        except (ValueError, pa.ArrowException) as error:
            raise CorruptExtent(
                "not a readable column", object=self._key, block=block, column=name, reason=reason_of(error)
            ) from error

    def _pages(self, name: str, block: int, info: BlockInfo) -> shredded.BlockPages:
        """Return a block of a dynamic column, of which pages are fetched one by one."""
        piece = info.pieces[name]

        def fetch(places: Sequence[tuple[int, int]]) -> Sequence[pa.Buffer]:
            if any(offset + length > piece.length for offset, length in places):
                raise ValueError("a page that ends past its block")
            return self._store.get_ranges(self._key, [(piece.offset + offset, length) for offset, length in places])

        return self._block_pages(name, block, info.stats.rows, fetch)

    def _block_pages(self, name: str, block: int, rows: int, fetch: Any) -> shredded.BlockPages:
        return shredded.BlockPages(
            self._directory(name), block, rows, fetch=fetch,
            dictionary=lambda leaf: self._leaf_dictionary(name, leaf),
            lines=lambda leaf: self._line_dictionary((name, leaf)),
        )  # fmt: skip

    def _directory(self, name: str) -> shredded.Directory:
        if name not in self._directories:
            place = self._parts.shredded[name]
            data = self._verified(place, name)
            try:
                found = shredded.parse_directory(
                    memoryview(data), block_count=len(self._parts.blocks), end=self._parts.byte_size
                )
            except (ValueError, pa.ArrowException) as error:
                raise CorruptExtent(
                    "not a readable directory", object=self._key, column=name, reason=reason_of(error)
                ) from error
            with self._lock:
                self._directories.setdefault(name, found)
        return self._directories[name]

    def _column_dictionary(self, name: str) -> pa.Array | None:
        place = self._parts.dictionaries.get(name)
        if place is None:
            return None
        piece, count = place
        return self._dictionary((name, -1), piece, count)

    def _line_dictionary(self, texts: Texts) -> template_pages.Dictionary:
        """Return the templates and words of texts that are stored by templates."""
        if texts not in self._templates:
            column, every_word, places = self._line_places(texts)
            data = [(memoryview(self._verified(piece, column)), count) for piece, count in places]
            with self._readable(None, column):
                held = [codecs.decode_texts(page, count, pa.binary()) for page, count in data]
                found = template_pages.Dictionary(*held, every_word=every_word)
            with self._lock:
                self._templates.setdefault(texts, found)
        return self._templates[texts]

    def _line_places(self, texts: Texts) -> tuple[str, bool, list[tuple[PieceInfo, int]]]:
        """Return the column of texts, whether each word is a variable, and where their templates and words lie."""
        if isinstance(texts, str):
            held = self._parts.templates[texts]
            return texts, held.every_word, [held.templates, held.words]
        column, leaf = texts
        own = self._directory(column).lines[leaf]
        return column, own.every_word, [(_piece(place), place.texts) for place in (own.templates, own.words)]

    def _leaf_dictionary(self, name: str, leaf: int) -> pa.Array:
        place = self._directory(name).dictionaries[leaf]
        return self._dictionary((name, leaf), _piece(place), place.texts)

    def _dictionary(self, at: tuple[str, int], piece: PieceInfo, count: int) -> pa.Array:
        if at not in self._dictionaries:
            found = codecs.decode_texts(memoryview(self._verified(piece, at[0])), count, pa.utf8())
            with self._lock:
                self._dictionaries.setdefault(at, found)
        return self._dictionaries[at]

    def _verified(self, piece: PieceInfo, name: str) -> pa.Buffer:
        data = self._store.get_range(self._key, piece.offset, piece.length)
        if checksum_of(data) != piece.checksum:
            raise CorruptExtent("checksum mismatch", object=self._key, column=name, kind="checksum")
        return data


def _slices(data: pa.Buffer, places: Sequence[tuple[int, int]]) -> list[pa.Buffer]:
    return [data.slice(offset, length) for offset, length in places]


def _column_of(texts: Texts) -> str:
    return texts if isinstance(texts, str) else texts[0]


def _piece(place: leaf_lines.Place) -> PieceInfo:
    return PieceInfo(place.offset, place.length, f"{place.checksum:016x}")


class _TemplatePlaces(NamedTuple):
    """Where the templates of a column and the words of their variables lie, and how many there are.

    ``heads`` are the bytes of each block that tell the templates of its rows: their length and checksum.
    """

    templates: tuple[PieceInfo, int]
    words: tuple[PieceInfo, int]
    every_word: bool
    heads: Sequence[tuple[int, str]]


@dataclass(frozen=True, slots=True)
class _Parts:
    """An opened extent: what its footer says."""

    extent_id: str
    schema: Schema
    byte_size: int
    footer_bytes: int
    blocks: Sequence[BlockInfo]
    dictionaries: Mapping[str, tuple[PieceInfo, int]]
    shredded: Mapping[str, PieceInfo]
    templates: Mapping[str, _TemplatePlaces]
    postings: Mapping[str, Sequence[PieceInfo]]
    differences: Mapping[str, str]  # columns that are stored as differences, each with the column that they are from

    def slim(self, blocks: Collection[int], columns: Collection[str]) -> _Parts:
        """Return what is needed to read these columns of these blocks."""
        bases = {base for name, base in self.differences.items() if name in columns}
        kept = tuple(c for c in self.schema if c.name in columns or c.name in bases) or self.schema.columns[:1]
        names = [column.name for column in kept]
        return replace(
            self,
            differences={name: base for name, base in self.differences.items() if name in names},
            schema=Schema(kept, self.schema.version),
            blocks=slim_blocks(self.blocks, blocks, names),
            dictionaries={name: place for name, place in self.dictionaries.items() if name in names},
            shredded={name: place for name, place in self.shredded.items() if name in names},
            templates={name: place for name, place in self.templates.items() if name in names},
            postings={name: places for name, places in self.postings.items() if name in names},
        )


def _open(store: ObjectStore, key: str) -> _Parts:
    tail = store.get_tail(key, TAIL_BYTES)
    if tail.size < _MIN_BYTES or bytes(memoryview(tail.data)[-MAGIC_BYTES:]) != MAGIC_V3:
        raise ValueError("no closing magic of the third version")
    footer = footer_bytes_of(store, key, tail, MAGIC_V3)
    entries = parsed_footer(unpacked_footer(footer))
    extent = entries[-1]["extent"]
    schema, end = Schema.from_json(extent["schema"]), tail.size
    blocks = []
    for entry in entries:
        rows, tides = checked_entry(entry, schema.names)
        places = EntryPlaces(key, tides, schema.names, end)
        unpacked = entry.get("unpacked")
        blocks.append(
            BlockInfo(Stats(rows, EntryColumns(key, entry, schema)), places, _size(unpacked) if unpacked else None)
        )
    words = {name: (piece_of(place, end), _count(place)) for name, place in extent["dictionaries"].items()}
    directories = {name: piece_of(place, end) for name, place in extent["shredded"].items()}
    if missing := [c.name for c in schema if c.type.kind == "dynamic" and c.name not in directories]:
        raise ValueError(f"no directory of column {missing[0]!r}")
    split = {name: _template_places(each, end, blocks, name) for name, each in extent.get("templates", {}).items()}
    listed = {name: [piece_of(each, end) for each in places] for name, places in extent.get("postings", {}).items()}
    if any(len(places) != len(blocks) for places in listed.values()):
        raise ValueError(f"postings of other than {len(blocks)} blocks")
    apart = differences.checked(extent.get("differences", {}), schema)
    return _Parts(extent["id"], schema, end, len(footer), blocks, words, directories, split, listed, apart)


def _template_places(told: Mapping[str, Any], end: int, blocks: Sequence[BlockInfo], name: str) -> _TemplatePlaces:
    heads = tuple((length, checksum) for length, checksum in told["heads"])
    if len(heads) != len(blocks) or type(told["every_word"]) is not bool:
        raise ValueError(f"templates of {len(heads)} blocks where there are {len(blocks)}")
    for (length, checksum), block in zip(heads, blocks, strict=True):
        place = block.pieces[name]
        piece_of({"at": place.offset, "len": length, "sum": checksum}, place.offset + place.length)
    own, words = ((piece_of(each, end), _count(each)) for each in (told, told["words"]))
    return _TemplatePlaces(own, words, told["every_word"], heads)


def _size(unpacked: object) -> int:
    if type(unpacked) is not int or not 0 <= unpacked < 2**48:
        raise ValueError(f"a block of {unpacked!r} bytes")
    return unpacked


def _count(place: Mapping[str, Any]) -> int:
    count = place["count"]
    if type(count) is not int or not 0 <= count < 2**31:
        raise ValueError(f"a dictionary of {count!r} texts")
    return count


# Extents whose columns have codecs of their own.
FORMAT = BlockFormat(NAME, ".tlm", Tlm3Reader, encode, keeps_paths=True, knows_words=True)
