"""Fail on purpose: wrap a store, break what a test says, and count what was asked of it.

A fault names a verb, the keys it is for, how to fail and how often; chance and damage come from a seed, so a run can be
repeated. ``fired`` tells what really happened, so that a test can show that its fault was met. It does not fail by
itself.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

import pyarrow as pa

from tidelake.errors import StorageError
from tidelake.objects import Buffers, Data, ObjectMeta, ObjectStore, Range, Tail

Mode = Literal["before", "after", "torn", "slow", "stale", "flip", "unconditional"]

_WRITES = ("put", "put_if_absent", "delete")
_READS = ("get", "get_range", "get_ranges", "get_tail")
_VERBS = (*_READS, *_WRITES, "head", "list")
_VERBS_OF_MODE: dict[Mode, tuple[str, ...]] = {
    "before": _VERBS,
    "after": _VERBS,
    "slow": _VERBS,
    "torn": _WRITES,
    "stale": ("list",),
    "flip": _READS,
    "unconditional": ("put_if_absent",),
}


@dataclass(frozen=True, slots=True)
class Fault:
    """One way to fail.

    ``before`` raises and does nothing; ``after`` acts and raises, as when the answer is lost; ``torn`` stores a part of
    the bytes under the key, or deletes a part of the keys, and raises; ``slow`` sleeps and then acts; ``stale`` leaves
    the newest keys out of a list; ``flip`` turns one bit of what is read; ``unconditional`` lets a conditional put
    overwrite, as some servers do.
    """

    verb: str  # a verb, or a pattern such as "get*" or "*"
    mode: Mode
    match: str = "*"  # the keys it is for; for a list, the prefix
    times: int | None = 1  # how often it fires, or always
    skip: int = 0  # how many calls it lets pass first
    chance: float = 1.0
    kind: str = "timeout"  # of the StorageError
    seconds: float = 0.05  # how long slow is
    newest: int = 1  # how many keys a stale list lacks


@dataclass(frozen=True, slots=True)
class Firing:
    """A fault that was met."""

    verb: str
    key: str
    mode: Mode


class FaultyStore:
    """A store that does what the inner one does, except for its faults."""

    def __init__(self, inner: ObjectStore, faults: Iterable[Fault] = (), *, seed: int = 0) -> None:
        self.inner = inner
        self.url = inner.url
        self.calls: Counter[str] = Counter()
        self.bytes_by_verb: Counter[str] = Counter()
        self.fired: list[Firing] = []
        self.place = getattr(inner, "place", None)
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        self._turns = itertools.count()
        self._writes: dict[str, int] = {}  # each key's turn among the writes seen here
        self._faults: list[_Armed] = []
        for fault in faults:
            self.add(fault)

    @property
    def keeps_conditions(self) -> bool:
        """Whether nobody needs to ask: the inner store keeps them, and no fault makes it careless."""
        careless = any(armed.fault.mode == "unconditional" for armed in self._faults)
        return getattr(self.inner, "keeps_conditions", False) and not careless

    @property
    def reads(self) -> int:
        """How many calls read bytes."""
        return sum(self.calls[verb] for verb in _READS)

    @property
    def bytes_read(self) -> int:
        """How many bytes all reads gave."""
        return self.bytes_by_verb.total()

    def add(self, fault: Fault) -> None:
        """Arm one more fault."""
        verbs = [verb for verb in _VERBS_OF_MODE[fault.mode] if fnmatchcase(verb, fault.verb)]
        if not verbs:
            raise ValueError(f"{fault.mode!r} cannot happen to {fault.verb!r}")
        self._faults.append(_Armed(fault, frozenset(verbs), fault.skip, fault.times))

    def clear(self) -> None:
        """Disarm all faults and forget all counts."""
        self._faults.clear()
        self.calls.clear()
        self.bytes_by_verb.clear()
        self.fired.clear()

    def get(self, key: str) -> pa.Buffer:
        fault = self._begin("get", key)
        return self._read("get", fault, [self.inner.get(key)])[0]

    def get_range(self, key: str, start: int, length: int) -> pa.Buffer:
        fault = self._begin("get_range", key)
        return self._read("get_range", fault, [self.inner.get_range(key, start, length)])[0]

    def get_ranges(self, key: str, ranges: Sequence[Range]) -> Buffers:
        fault = self._begin("get_ranges", key)
        return self._read("get_ranges", fault, self.inner.get_ranges(key, ranges))

    def get_tail(self, key: str, length: int) -> Tail:
        fault = self._begin("get_tail", key)
        tail = self.inner.get_tail(key, length)
        return Tail(self._read("get_tail", fault, [tail.data])[0], tail.size)

    def head(self, key: str) -> ObjectMeta:
        fault = self._begin("head", key)
        meta = self.inner.head(key)
        _raise_after(fault)
        return meta

    def put(self, key: str, data: Data) -> None:
        fault = self._begin("put", key)
        self.inner.put(key, self._torn(fault, data))
        self._note_write(key)
        _raise_after(fault)

    def put_if_absent(self, key: str, data: Data) -> None:
        fault = self._begin("put_if_absent", key)
        write = self.inner.put if fault and fault.mode == "unconditional" else self.inner.put_if_absent
        write(key, self._torn(fault, data))
        self._note_write(key)
        _raise_after(fault)

    def list(self, prefix: str = "") -> Iterator[ObjectMeta]:
        fault = self._begin("list", prefix)
        found = self.inner.list(prefix)
        _raise_after(fault)
        return self._without_newest(found, fault.newest) if fault and fault.mode == "stale" else found

    def delete(self, keys: Iterable[str]) -> None:
        wanted = list(keys)
        fault = self._begin("delete", *wanted)
        self.inner.delete(wanted[: len(wanted) // 2] if fault and fault.mode == "torn" else wanted)
        _raise_after(fault)

    def _begin(self, verb: str, *keys: str) -> Fault | None:
        """Count the call, choose its fault, and act on one that comes first."""
        with self._lock:
            self.calls[verb] += 1
            fault = next((armed.fault for armed in self._faults if armed.fires(verb, keys, self._random)), None)
            if fault:
                self.fired.append(Firing(verb, next((k for k in keys if fnmatchcase(k, fault.match)), ""), fault.mode))
        if fault and fault.mode == "before":
            raise StorageError("failed on purpose before acting", kind=fault.kind, verb=verb)
        if fault and fault.mode == "slow":
            time.sleep(fault.seconds)
        return fault

    def _read(self, verb: str, fault: Fault | None, found: Buffers) -> Buffers:
        with self._lock:
            self.bytes_by_verb[verb] += sum(buffer.size for buffer in found)
            if fault and fault.mode == "flip" and (full := [n for n, buffer in enumerate(found) if buffer.size]):
                chosen = self._random.choice(full)
                found[chosen] = self._flipped(found[chosen])
        _raise_after(fault)
        return found

    def _flipped(self, buffer: pa.Buffer) -> pa.Buffer:
        data = bytearray(buffer)
        data[self._random.randrange(len(data))] ^= 1 << self._random.randrange(8)
        return pa.py_buffer(bytes(data))

    def _torn(self, fault: Fault | None, data: Data) -> Data:
        if not fault or fault.mode != "torn":
            return data
        whole = bytes(data)
        with self._lock:
            return whole[: self._random.randrange(max(len(whole), 1))]

    def _note_write(self, key: str) -> None:
        with self._lock:
            self._writes[key] = next(self._turns)

    def _without_newest(self, found: Iterator[ObjectMeta], count: int) -> Iterator[ObjectMeta]:
        metas = list(found)
        newest = sorted(metas, key=lambda meta: (self._writes.get(meta.key, -1), meta.modified))[-count:]
        return (meta for meta in metas if meta not in newest)


@dataclass(slots=True)
class _Armed:
    fault: Fault
    verbs: frozenset[str]
    skip: int
    times: int | None

    def fires(self, verb: str, keys: Sequence[str], chance: random.Random) -> bool:
        """Return whether this call is the fault's, and count it."""
        if verb not in self.verbs or self.times == 0:
            return False
        if not any(fnmatchcase(key, self.fault.match) for key in keys):
            return False
        if self.skip:
            self.skip -= 1
            return False
        if chance.random() >= self.fault.chance:
            return False
        if self.times is not None:
            self.times -= 1
        return True


def _raise_after(fault: Fault | None) -> None:
    if fault and fault.mode in ("after", "torn"):
        raise StorageError("failed on purpose, the answer is lost", kind=fault.kind)
