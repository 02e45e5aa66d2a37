"""Write extents of the third body: encode the columns of all blocks, then lay them out and close the frame.

``tlm3`` says how they lie, and reads them. It does not decide which rows an extent has.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa

from tidelake.format import codecs, differences
from tidelake.format.choosing import Choice
from tidelake.format.frame import packed_json
from tidelake.format.segment import block_entry, checksum_of
from tidelake.model.schema import Schema
from tidelake.pruning.statistics import Stats
from tidelake.runtime.deferred import deferred
from tidelake.runtime.readiness import has_loops

if TYPE_CHECKING:
    from tidelake.format import dictionaries, leaf_lines, shredded, templates
    from tidelake.format.writing import Draft, Seal
else:
    shredded, dictionaries = deferred("tidelake.format.shredded"), deferred("tidelake.format.dictionaries")
    templates, leaf_lines = deferred("tidelake.format.templates"), deferred("tidelake.format.leaf_lines")

MAGIC_V3 = b"KYMA\x03"
FILTERS = ("values", "terms", "grams", "leaves")
FILTERED_ROWS = 4_096  # of a block, below which filters of its dynamic columns are kept
FILTER_SHARE = 0.1  # of a column's bytes in a block that its filters may take: more is as soon read as the column
PLAIN_ROWS = 4_096  # of an extent: more are neither split into templates nor searched for words without a compiler


def encode(draft: Draft, pool: Executor) -> Seal:
    """Encode the columns of all blocks; then lay them out and close the frame."""
    pages: dict[str, list[Any]] = {}
    firsts: dict[str, Future[bytes]] = {}
    others: dict[str, list[tuple[Any, Any]]] = {}
    choices: dict[str, Choice] = {}
    encoders: dict[str, Callable[..., bytes]] = {}
    words: dict[str, dictionaries.Coded] = {}
    leaves: dict[str, shredded.Encoded] = {}
    lines: dict[str, templates.Templated] = {}
    apart = differences.chosen(draft.schema, draft.blocks)
    is_looked_into = has_loops() or sum(block.num_rows for block in draft.blocks) <= PLAIN_ROWS
    for at, column in enumerate(draft.schema):
        values = [block.column(at) for block in draft.blocks]
        if column.type.kind == "dynamic":
            leaves[column.name] = encoded = shredded.encode(values, pool)
            pages[column.name] = [b"".join(data for _, _, data in block) for block in encoded.pages]
            continue
        coded = dictionaries.coded(values) if column.type.kind == "string" else None
        if column.type.kind == "string" and is_looked_into:
            found = templates.templated(values, None if coded is None else coded.size(), pool)
            if found is not None:
                draft.collecting.begin(at, found.tokens)
                lines[column.name] = found
                continue
        draft.collecting.begin(at, distinct=None if coded is None else coded.distinct())
        codes: Sequence[Any] = [None] * len(values) if coded is None else coded.codes
        if coded is not None:
            words[column.name] = coded
        choice = choices[column.name] = Choice()
        encode = encoders[column.name] = differences.encode if column.name in apart else codecs.encode_column
        beside = [block.column(apart[column.name]) for block in draft.blocks] if column.name in apart else codes
        firsts[column.name] = pool.submit(encode, values[0], beside[0], choice)
        others[column.name] = list(zip(values, beside, strict=True))[1:]
    for name, first in firsts.items():
        first.result()  # from which the choice has learned
        choices[name].is_open = False
        pages[name] = [first, *(pool.submit(encoders[name], *each, choices[name]) for each in others[name])]
    made = {name: [page if isinstance(page, bytes) else page.result() for page in each] for name, each in pages.items()}
    split_blocks = {name: [block.result() for block in each.blocks] for name, each in lines.items()}
    made |= {name: [block.page for block in each] for name, each in split_blocks.items()}
    heads = {name: [(b.head, checksum_of(b.page[: b.head])) for b in each] for name, each in split_blocks.items()}
    listings = {name: [b.postings for b in each if b.postings is not None] for name, each in split_blocks.items()}
    indexed = {name: each for name, each in listings.items() if each}

    def seal(stats: Sequence[Stats]) -> list[bytes | pa.Buffer]:
        parts: list[bytes | pa.Buffer] = [MAGIC_V3]
        at = len(MAGIC_V3)
        entries = []

        def put(data: bytes) -> dict[str, Any]:
            nonlocal at
            parts.append(data)
            at += len(data)
            return {"at": at - len(data), "len": len(data), "sum": checksum_of(data)}

        def put_texts(texts: pa.Array) -> dict[str, Any]:
            return {**put(codecs.encode_texts(texts)), "count": len(texts)}

        def place_of(place: Mapping[str, Any], count: int = 0) -> leaf_lines.Place:
            return leaf_lines.Place(place["at"], place["len"], count, int(place["sum"], 16))

        for number, known in enumerate(stats):
            places = [put(made[column.name][number]) for column in draft.schema]
            entry = block_entry(draft.schema, _within_share(known, draft.schema, places), places)
            entries.append({**entry, "unpacked": draft.blocks[number].nbytes})
        shared = {name: {**put(each.page), "count": len(each.dictionary)} for name, each in words.items()}
        split = {
            name: {
                **put_texts(each.templates),
                "words": put_texts(each.words),
                "every_word": each.every_word,
                "heads": heads[name],
            }
            for name, each in lines.items()
        }
        listed = {name: [put(page) for page in each] for name, each in indexed.items()}
        directories = {}
        for name, each in leaves.items():
            found = {leaf: place_of(put(data), count) for leaf, (count, data) in each.dictionaries.items()}
            told = {
                leaf: leaf_lines.LinesPlace(
                    place_of(put_texts(own.templates), len(own.templates)),
                    place_of(put_texts(own.words), len(own.words)),
                    own.every_word,
                    [place_of(put(own.postings[at])) if at in own.postings else None for at in range(len(stats))],
                )
                for leaf, own in each.lines.items()
            }
            directories[name] = put(shredded.directory_bytes(each, found, told))
        entries[-1]["extent"] = {
            "id": draft.extent_id,
            "schema": draft.schema.to_json(),
            "dictionaries": shared,
            "templates": split,
            "postings": listed,
            "shredded": directories,
            **({"differences": apart} if apart else {}),
        }
        footer = packed_json(orjson.dumps(entries))
        return [*parts, footer, struct.pack("<I", len(footer)) + MAGIC_V3]

    return seal


def _within_share(known: Stats, schema: Schema, places: Sequence[Mapping[str, Any]]) -> Stats:
    """Leave out filters of a block that take more than a share of what they spare, the largest first.

    Those of shredded columns are left out of large blocks at all: a path is read for a tenth of their bytes. The
    catalog has the filters of the whole extent.
    """
    columns = dict(known.columns)
    for column, place in zip(schema, places, strict=True):
        own = columns[column.name]
        filters = {name: len(held.to_text()) * 3 // 4 for name in FILTERS if (held := getattr(own, name)) is not None}
        is_shredded = column.type.kind == "dynamic" and known.rows >= FILTERED_ROWS
        room = 0 if is_shredded else int(place["len"] * FILTER_SHARE)
        for name in sorted(filters, key=lambda each: -filters[each]):
            share = 2 if name == "terms" else 1  # words of prose are in most blocks, and their filters spare little
            if sum(filters.values()) > room or filters[name] * share > room:
                del filters[name]
        values, terms, grams = (getattr(own, name) if name in filters else None for name in FILTERS[:3])
        leaves = own.leaves if "leaves" in filters else None
        columns[column.name] = replace(own, values=values, terms=terms, grams=grams, leaves=leaves)
    return replace(known, columns=columns)
