"""Read some columns of the few rows of an extent that may match, of several blocks at once.

A block has a row or two of what is looked for, and what is done for each block takes longer than what is done for such
a row: so columns are put together, conformed and asked once for the rows of many blocks. It does not find these rows:
see ``candidates``; nor does it tell which versions they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tidelake.dynamic import path_values
from tidelake.format import ExtentReader
from tidelake.pruning.plan import Block
from tidelake.scan.path_columns import Path, filled, reads_paths, with_paths
from tidelake.scan.shapes import Shape, bare
from tidelake.scan.stored_rows import (
    Places,
    StoredBlock,
    joined,
    paths_apart,
    read_columns,
)


@dataclass(frozen=True, slots=True)
class FewRows:
    """Rows of one extent: of each block some, by their ascending places in it."""

    reader: ExtentReader
    parts: tuple[tuple[Block, Places], ...]

    def __len__(self) -> int:
        return sum(len(places) for _, places in self.parts)

    def only(self, numbers: Places) -> FewRows:
        """Return some of these rows, by their ascending numbers among them."""
        ends = np.cumsum([len(places) for _, places in self.parts]).tolist()
        cuts = np.searchsorted(numbers, [0, *ends]).tolist()
        kept = [
            (block, places[numbers[cuts[at] : cuts[at + 1]] - (ends[at] - len(places))])
            for at, (block, places) in enumerate(self.parts)
        ]
        return FewRows(self.reader, tuple(each for each in kept if len(each[1])))

    def loaded(self, shape: Shape) -> pa.RecordBatch:
        """Read some columns of them, as the table has them now."""
        written = self.reader.metadata().schema.names
        batch = shape.conformed(self._read(shape, shape.written(written)), written, len(self))
        return with_paths(batch, shape.paths, self._at_paths(shape)) if shape.paths else batch

    def _read(self, shape: Shape, names: Sequence[str]) -> pa.RecordBatch:
        """Read columns as they were written; lines are put together for these rows alone."""
        reader: Any = self.reader
        known = [name for name in names if reader.lines(name) is not None] if hasattr(reader, "read_lines") else []
        found = {name: reader.read_lines(name, self._places()) for name in known}
        others = [name for name in names if name not in found]
        if others:
            batch = joined(
                [
                    read_columns(self.reader, block.number, shape, others).take(pa.array(places))
                    for block, places in self.parts
                ]
            )
            found |= dict(zip(others, batch.columns, strict=True))
        return pa.RecordBatch.from_pydict({name: found[name] for name in names}) if names else bare(len(self))

    def _places(self) -> list[tuple[int, Places]]:
        return [(block.number, places) for block, places in self.parts]

    def _at_paths(self, shape: Shape) -> list[pa.StructArray]:
        """Read what rows have at paths: alone where the extent keeps them apart, else out of whole values."""
        found = self._apart(paths_apart(self.reader, shape))
        if len(found) < len(shape.paths):
            others = list[dict[Path, pa.Array]]()
            for block, places in self.parts:
                whole = StoredBlock(self.reader, None, block).others_at_paths(shape, found)
                others.append({path: values.take(pa.array(places)) for path, values in whole.items()})
            found |= {path: _together([each[path] for each in others]) for path in others[0]}
        return [found[each] for each in shape.paths]

    def _apart(self, paths: Sequence[Path]) -> dict[Path, pa.Array]:
        """Read what is at paths that the extent keeps apart: texts that are lines all at once."""
        reader: Any = self.reader
        found = {path: texts for path in paths if (texts := self._lines_at(path)) is not None}
        others = [path for path in paths if path not in found]
        if others and reads_paths(reader):
            read = [reader.read_paths(number, others, places) for number, places in self._places()]
            found |= {path: _together(parts) for path, parts in zip(others, zip(*read, strict=True), strict=True)}
        return found

    def _lines_at(self, path: Path) -> pa.StructArray | None:
        """Read what is at a path where all of these rows have a text that is stored by templates; else None."""
        reader: Any = self.reader
        if not hasattr(reader, "keeps_lines") or not reader.keeps_lines(*path):
            return None
        leaf, rows = None, list[tuple[int, Places]]()
        for number, places in self._places():
            known = reader.text_rows(number, *path)
            own = next(((leaf, having) for leaf, having in known.texts if having[places].all()), None)
            if own is None or own[0] != (own[0] if leaf is None else leaf):
                return None
            leaf, having = own
            rows.append((number, places if having.all() else (np.cumsum(having) - 1)[places]))
        if reader.lines((path[0], leaf)) is None:
            return None
        return path_values.of_texts(reader.read_lines((path[0], leaf), rows))


def _together(parts: Sequence[pa.Array]) -> pa.Array:
    """Join what several blocks have at a path."""
    if len(parts) == 1:
        return parts[0]
    if any(part.type != parts[0].type for part in parts):
        parts = [filled(part) for part in parts]
    return pa.concat_arrays(parts)
