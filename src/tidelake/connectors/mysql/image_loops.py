"""Find the values in row images of a binlog, compiled.

A row image is a bitmap of the columns that are null, then each other value: of fixed width, or its length and its
bytes. It does not make columns of them: see ``images``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tidelake.runtime.compiling import compiled

OUTSIDE = -1  # an error: an image reaches past the end of its event
NULL = -1  # the length of a value that is none


@compiled
def find(data: Any, begins: Any, ends: Any, widths: Any, prefixes: Any, counts: Any, starts: Any, lengths: Any) -> Any:
    """Write where each value of each image is; with no room in ``starts``, only how many images each event has.

    A column is as wide as ``widths`` says, or if that is negative as the number in its first ``prefixes`` bytes says.
    Return the number of images, or -1 - n if the n-th event is broken.
    """
    columns = len(widths)
    bitmap = (columns + 7) // 8
    image = 0
    for event in range(len(begins)):
        at, end, first = begins[event], ends[event], image
        while at < end:
            nulls = at
            at += bitmap
            if at > end:
                return OUTSIDE - event
            for column in range(columns):
                start, length = at, np.int64(NULL)
                if not (data[nulls + column // 8] >> (column % 8)) & 1:
                    length = widths[column]
                    if length < 0:
                        prefix = prefixes[column]
                        if at + prefix > end:
                            return OUTSIDE - event
                        length = np.int64(0)
                        for step in range(prefix):
                            length |= np.int64(data[at + step]) << np.int64(8 * step)
                        start = at + prefix
                    at = start + length
                    if at > end:
                        return OUTSIDE - event
                if len(starts) > 0:
                    starts[image, column], lengths[image, column] = start, length
            image += 1
        counts[event] = image - first
    return image
