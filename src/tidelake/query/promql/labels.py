"""Hold the labels of many series as numbers: a row for each series, a column for each label, a number for each text.

Texts are numbered once for a query, so that two vectors agree on them; 0 is the empty text, which is as good as no
label. Grouping, joining and comparing label sets are then operations on whole columns of numbers. It does not know
samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

NAME = "__name__"
METADATA = (NAME, "__type__", "__unit__")  # what is said of a metric, and is no longer true of what is computed from it

Codes: TypeAlias = npt.NDArray[np.int64]


@dataclass(slots=True)
class Words:
    """The texts of a query, each with its number."""

    texts: list[str] = field(default_factory=lambda: [""])
    numbers: dict[str, int] = field(default_factory=lambda: {"": 0})

    def number(self, text: str) -> int:
        """Return the number of a text, which it gets now if it has none."""
        found = self.numbers.get(text)
        if found is None:
            found = self.numbers[text] = len(self.texts)
            self.texts.append(text)
        return found


@dataclass(frozen=True, slots=True)
class Labels:
    """The label sets of some series: ``codes`` has a row for each series and a column for each of ``names``."""

    words: Words
    names: tuple[str, ...]
    codes: Codes

    @classmethod
    def of(cls, words: Words, sets: Sequence[Mapping[str, str]]) -> Labels:
        """Number the texts of label sets; a loop over the distinct sets, not over samples."""
        names = tuple(sorted({name for each in sets for name in each}))
        rows = [[words.number(each.get(name, "")) for name in names] for each in sets]
        return cls(words, names, np.array(rows, np.int64).reshape(len(sets), len(names)))

    @classmethod
    def nothing(cls, words: Words, series: int) -> Labels:
        """Return label sets without a label."""
        return cls(words, (), np.empty((series, 0), np.int64))

    def __len__(self) -> int:
        return len(self.codes)

    def column(self, name: str) -> Codes:
        """Return the numbers of one label's values, 0 where a series does not have it."""
        if name in self.names:
            return self.codes[:, self.names.index(name)]
        return np.zeros(len(self.codes), np.int64)

    def columns(self, names: Iterable[str]) -> Codes:
        """Return the numbers of several labels, in their order."""
        found = [self.column(name) for name in names]
        return np.stack(found, axis=1) if found else np.empty((len(self.codes), 0), np.int64)

    def take(self, rows: Any) -> Labels:
        """Return the label sets of some rows."""
        return Labels(self.words, self.names, self.codes[rows])

    def only(self, names: Iterable[str]) -> Labels:
        """Return the sets with no other labels than these."""
        kept = tuple(sorted(set(names) & set(self.names)))
        return Labels(self.words, kept, self.columns(kept))

    def without(self, names: Iterable[str]) -> Labels:
        """Return the sets without these labels."""
        dropped = set(names)
        if not dropped & set(self.names):
            return self
        return self.only(name for name in self.names if name not in dropped)

    def nameless(self) -> Labels:
        """Return the sets without the name of the metric, its type and its unit."""
        return self.without(METADATA)

    def replaced(self, name: str, codes: Codes) -> Labels:
        """Return the sets with another column for one label."""
        names = tuple(sorted({*self.names, name}))
        columns = [codes if each == name else self.column(each) for each in names]
        return Labels(self.words, names, np.stack(columns, axis=1))

    def mapped(self, name: str, change: Callable[[str], str]) -> Codes:
        """Return the column of one label with each of its distinct texts changed."""
        distinct, where = np.unique(self.column(name), return_inverse=True)
        changed = [self.words.number(change(self.words.texts[code])) for code in distinct.tolist()]
        return np.array(changed, np.int64)[where.reshape(-1)]

    def sets(self) -> list[dict[str, str]]:
        """Return the sets as mappings, in which empty labels are left out; a loop over series."""
        texts = self.words.texts
        return [
            {name: texts[code] for name, code in zip(self.names, row, strict=True) if code}
            for row in self.codes.tolist()
        ]

    def sort_order(self) -> npt.NDArray[np.intp]:
        """Return the order of the series by their label sets, as Prometheus sorts them."""
        if self.names and self.codes.all():  # all have the same labels: what decides is the first text that differs
            used, where = np.unique(self.codes, return_inverse=True)
            texts = [self.words.texts[code] for code in used.tolist()]
            rank = np.empty(len(texts), np.int64)
            rank[sorted(range(len(texts)), key=texts.__getitem__)] = np.arange(len(texts))
            return np.lexsort(rank[where].reshape(self.codes.shape).T[::-1])
        keys = [sorted(each.items()) for each in self.sets()]
        return np.array(sorted(range(len(keys)), key=keys.__getitem__), np.intp)


def joined(parts: Sequence[Labels]) -> Labels:
    """Return the label sets of several vectors, one after the other."""
    names = tuple(sorted({name for part in parts for name in part.names}))
    return Labels(parts[0].words, names, np.concatenate([part.columns(names) for part in parts]))


def distinct(codes: Codes) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Return for rows of numbers one row of each distinct kind, by its place, and for each row the number of its kind.

    Kinds are in the order in which they first occur.
    """
    if codes.shape[1] == 0 or len(codes) == 0:
        return np.zeros(min(len(codes), 1), np.intp), np.zeros(len(codes), np.intp)
    _, first, inverse = np.unique(codes, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return first[order], rank[inverse.reshape(-1)]
