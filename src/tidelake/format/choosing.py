"""Choose among codecs by measuring: the one that makes values smallest, and of those as small the quickest.

Candidates encode a sample, those that come within ``CLOSE`` of the best encode the whole, and of these the quickest is
kept that is as small as any, to a hundredth. What was chosen for the first block of a column is tried first for the
others. It does not know what codecs do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy.typing as npt

SAMPLE = 8_192  # values that candidates are tried on: a stretch from the middle
CLOSE = 1.15  # candidates this near to the best of a sample are tried on the whole
AS_SMALL = 1.01  # of the smallest: among those a quicker codec is kept
AS_GOOD = 1.002  # of what a codec makes of a sample, for another one that does the same sooner
REPEATING = 0.25  # bytes a value, below which there are repeats, and a glance does not show how far apart
ALIKE = 1.1  # a block that takes more or less than this of what the first one took is tried in every way again
LEARNED = 1_024  # values from which on what was chosen tells of other blocks
THE_SAME = 1.02  # and a block that takes no more or less than this is not looked at for another codec
GLANCE = 2_048  # values that show whether another codec has become better since the first block

Array: TypeAlias = npt.NDArray[Any]
Encode: TypeAlias = Callable[[Any], bytes | None]  # None of what the codec has no form for


@dataclass(slots=True)
class Choice:
    """What was smallest for the first block of a column, so that blocks after it need not try everything again.

    It learns while it ``is_open``, from one block alone: what is stored must not depend on which thread was faster.
    """

    is_open: bool = True
    codec: Encode | None = None
    rate: float = 0.0  # bytes that a value took
    level: int | None = None  # of zstd, for texts


def smallest(
    values: Array,
    candidates: Sequence[Encode],
    choice: Choice | None = None,
    sooner: Mapping[Encode, Sequence[Encode]] = MappingProxyType({}),
) -> bytes:
    """Encode values in the way that is smallest, so far as a sample tells, and among the near ones exactly.

    Candidates stand in the order of their speed, and the first has a form for any values. ``sooner`` has those that do
    the same as one, where there is nothing else to find.
    """
    plain = candidates[0]
    is_learned = choice is not None and len(values) >= LEARNED
    if choice is not None and is_learned and (found := _as_before(values, candidates, choice)) is not None:
        return found
    if len(values) > 2 * SAMPLE:
        sample = _middle(values, SAMPLE)
        tried = [(len(page), each) for each in candidates if (page := each(sample)) is not None]
        best = min(size for size, _ in tried)
        candidates = [_soonest(each, sooner, sample, size) for size, each in tried if size <= best * CLOSE]
    made = [(page, each) for each in candidates if (page := each(values)) is not None]
    if not made:  # those that a sample spoke for have no form for the whole
        return plain(values) or b""
    minimum = min(len(page) for page, _ in made)
    page, codec = next(found for found in made if len(found[0]) <= minimum * AS_SMALL)
    if choice is not None and is_learned and choice.is_open:
        choice.codec, choice.rate = codec, len(page) / len(values)
    return page


def _soonest(codec: Encode, sooner: Mapping[Encode, Sequence[Encode]], sample: Array, size: int) -> Encode:
    """Return the codec, or one that does the same to a sample of which it made so many bytes, in less time."""
    others = ((each, each(sample)) for each in sooner.get(codec, ()))
    return next((each for each, page in others if page is not None and len(page) <= size * AS_GOOD), codec)


def _as_before(values: Array, candidates: Sequence[Encode], choice: Choice) -> bytes | None:
    """Encode values as those of the first block, if they take about as much and a glance tells of nothing better.

    What was plain is tried anew: that is as fast, and any values take as much so.
    """
    codec, plain = choice.codec, candidates[0]
    if codec is None or codec is plain or (page := codec(values)) is None:
        return None
    rate: float = len(page) / len(values)
    apart = max(rate / choice.rate, choice.rate / rate)
    if rate < REPEATING or apart > ALIKE:
        return None
    if apart <= THE_SAME:
        return page
    glance, minimum = _middle(values, GLANCE), rate * min(GLANCE, len(values)) / AS_SMALL
    others = (each(glance) for each in candidates if each not in (codec, plain))
    return page if all(other is None or len(other) > minimum for other in others) else None


def _middle(values: Array, count: int) -> Array:
    start = max(0, (len(values) - count) // 2)
    return values[start : start + count]
