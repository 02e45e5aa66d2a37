"""Cut lines of JSON objects into the values of their keys, compiled, in one pass over the bytes.

``shred`` checks every byte (UTF-8 included) and keeps, for each value that is not null, one entry of 25 bytes: its row,
its key, its kind, where its text is, and its number or its length. Maps and lists become canonical CBOR on the way.
Entries are then grouped by key. Tables that turn out too small are made larger and the line begins again, so that the
pass allocates by what the data needs. The first call on a machine compiles, for some ten seconds; later processes load
the code. It does not know schemas or types: see ``columns``.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from typing import Any

import cbor2
import numpy as np
import numpy.typing as npt

from tidelake.dynamic.values import MAX_DEPTH
from tidelake.errors import InvalidInputError
from tidelake.ingest.json.text import (
    BAD_CONTROL,
    BAD_ESCAPE,
    BAD_NUMBER,
    BAD_RANGE,
    BAD_SURROGATE,
    BAD_UTF8,
    BIG,
    FALSE,
    FINE,
    LIST,
    MAP,
    NO_COLON,
    NO_COMMA,
    NO_END,
    NO_KEY,
    NO_OBJECT,
    NO_VALUE,
    REAL,
    SLOW,
    TEXT,
    TOO_DEEP,
    TRUE,
    copy_text,
    scan_number,
    scan_text,
)
from tidelake.ingest.json.to_cbor import (
    FULL_MARKS,
    FULL_OUT,
    FULL_SCRATCH,
    LEFT,
    LEVEL,
    MARK,
    MAX_VALUE_DEPTH,
    TEXT_HEAD,
    put_head,
    scan_literal,
    skip_blanks,
    transcode,
)
from tidelake.ingest.json.wording import NOT_AN_OBJECT, wrong_json
from tidelake.kernels.text_loops import finished, stirred
from tidelake.runtime.compiling import compiled, part

MAX_BYTES = (1 << 31) - 64  # of one call: places in Arrow's strings have 32 bits

FULL_ENTRIES, FULL_KEYS, FULL_LETTERS = -5, -6, -7

ENTRY = np.dtype(
    [("word", np.int64), ("start", np.int32), ("end", np.int32), ("row", np.int32), ("key", np.int32),
     ("kind", np.uint8)]
)  # fmt: skip
# One key: its hash, its CBOR text in ``letters``, the stamp and entry of the line that last had it, the key that
# followed it there, and the bytes by which the next line may recognise it (-1 for one that needs escapes).
KEY = np.dtype(
    [("hash", np.uint64), ("at", np.int64), ("size", np.int32), ("head", np.int32), ("stamp", np.int64),
     ("entry", np.int64), ("next", np.int32), ("plain", np.int32)]
)  # fmt: skip

Bytes = npt.NDArray[np.uint8]

_U = np.uint64
_SEED = np.uint64(secrets.randbits(64))  # so that nobody can choose keys that collide
_AT, _ROW, _COUNT, _OUT, _KEYS, _USED, _STAMP, _FIRST, _LEFT, _WRONG = range(10)

_REASONS = {
    NO_VALUE: "expected a value",
    NO_KEY: "expected a key in double quotes",
    NO_COLON: "expected a colon",
    NO_COMMA: "expected a comma or the end of the map or list",
    NO_OBJECT: NOT_AN_OBJECT,
    NO_END: "text after the object",
    BAD_NUMBER: "not a number",
    BAD_RANGE: "number too large",
    BAD_ESCAPE: "not an escape",
    BAD_SURROGATE: "half of a surrogate pair",
    BAD_CONTROL: "control character in a string",
    BAD_UTF8: "not UTF-8",
    TOO_DEEP: f"nested deeper than {MAX_DEPTH} levels",
}


@dataclass(frozen=True, slots=True)
class Shredded:
    """The values of some lines: entries in the order of the text, and ``order`` by key and row."""

    data: Bytes
    cbor: Bytes  # of maps, lists and numbers beyond 64 bits: an entry's word is their place << 32 | size
    rows: int
    entries: npt.NDArray[np.void]
    order: npt.NDArray[np.int64]
    starts: npt.NDArray[np.int64]  # where the entries of each key begin in ``order``, and the end of the last
    kinds: npt.NDArray[np.int64]  # a bit for every kind that a key's values have
    keys: npt.NDArray[np.void]
    letters: Bytes

    def of_key(self, key: int) -> npt.NDArray[np.int64]:
        """The entries of one key, by row."""
        return self.order[self.starts[key] : self.starts[key + 1]]

    def name(self, key: int) -> str:
        """The text of one key."""
        held = self.keys[key]
        return self.letters[held["at"] + held["head"] : held["at"] + held["size"]].tobytes().decode()

    def line(self, row: int) -> int:
        """Count the lines before and including a row's; for messages only."""
        seen = -1
        for number, line in enumerate(self.data.tobytes().split(b"\n"), start=1):
            seen += bool(line.removeprefix(b"\xef\xbb\xbf" if number == 1 else b"").strip(b" \t\r"))
            if seen == row:
                return number
        raise AssertionError(row)


def shred(data: Bytes, names: tuple[str, ...], *, first_line: int = 1) -> Shredded:
    """Cut NDJSON into entries; ``names`` are the keys from 0 up, others follow in the order they occur."""
    work = _Work(data, names)
    while (answer := work.run()) != FINE:
        if answer > 0:
            raise bad_json(data, int(work.place[_WRONG]), answer, first_line=first_line)
        work.grow(answer)
    return work.finish()


def lines_of(data: Bytes) -> Bytes:
    """Return text that ends with a newline, which every loop relies on; a copy only when it does not yet."""
    if len(data) > MAX_BYTES:
        raise InvalidInputError("too much JSON for one call", bytes=len(data), limit=MAX_BYTES, kind="too_large")
    if len(data) == 0 or data[-1] != 10:
        data = np.append(data, np.uint8(10))
    data.flags.writeable = False  # one type for the compiled loops
    return data


def bad_json(data: Bytes, at: int, reason: int, *, first_line: int = 1) -> InvalidInputError:
    """Return what is wrong with the text and where."""
    kind = "too_deep" if reason == TOO_DEEP else "bad_utf8" if reason == BAD_UTF8 else "bad_json"
    return wrong_json(data.tobytes(), at, _REASONS[reason], kind=kind, first_line=first_line)


class _Work:
    """The tables of one pass, each as large as it had to be."""

    def __init__(self, data: Bytes, names: tuple[str, ...]) -> None:
        self.data = data
        self.place = np.zeros(10, dtype=np.int64)
        self.place[_AT] = 3 if data[:3].tobytes() == b"\xef\xbb\xbf" else 0
        self.entries = np.empty(len(data) // 32 + 64, dtype=ENTRY)
        self.out = np.empty(len(data) // 4 + 1024, dtype=np.uint8)
        self.scratch = np.empty(1 << 12, dtype=np.uint8)
        self.marks = np.empty(1 << 8, dtype=MARK)
        self.levels = np.empty(MAX_VALUE_DEPTH, dtype=LEVEL)
        room = 1 << (4 * len(names) + 64).bit_length()
        self.keys = np.zeros(room // 2, dtype=KEY)
        self.slots = np.full(room, -1, dtype=np.int32)
        line = json.dumps(dict.fromkeys(names)).encode()  # a line of nulls, to make the names known in their order
        self.letters = np.empty(2 * len(line) + 4096, dtype=np.uint8)
        known = np.zeros(10, dtype=np.int64)
        self._run(lines_of(np.frombuffer(line, dtype=np.uint8)), known)
        self.place[_KEYS], self.place[_USED], self.place[_STAMP] = known[_KEYS], known[_USED], known[_STAMP]

    def run(self) -> int:
        return self._run(self.data, self.place)

    def _run(self, data: Bytes, place: Any) -> int:
        return int(
            _shred(
                data, place, self.entries, self.keys, self.slots, self.letters,
                self.out, self.scratch, self.marks, self.levels, _SEED,
            )
        )  # fmt: skip

    def grow(self, table: int) -> None:
        match table:
            case _ if table == FULL_ENTRIES:
                self.entries = self._larger(self.entries, self.place[_COUNT])
            case _ if table == FULL_OUT:
                self.out = self._larger(self.out, self.place[_OUT])
            case _ if table == FULL_SCRATCH:
                self.scratch = np.empty(len(self.scratch) * 4, dtype=np.uint8)
            case _ if table == FULL_MARKS:
                self.marks = np.empty(len(self.marks) * 4, dtype=MARK)
            case _ if table == FULL_LETTERS:
                self.letters = np.concatenate([self.letters, np.empty_like(self.letters)])
            case _:
                self.keys = np.concatenate([self.keys, np.zeros_like(self.keys)])
                self.slots = np.full(len(self.slots) * 2, -1, dtype=np.int32)
                _reinsert(self.keys[: self.place[_KEYS]], self.slots)

    def finish(self) -> Shredded:
        keys = int(self.place[_KEYS])
        entries = self.entries[: self.place[_COUNT]]
        starts, kinds = np.zeros(keys + 1, dtype=np.int64), np.zeros(keys, dtype=np.int64)
        order = np.empty(len(entries), dtype=np.int64)
        out = self.out[: self.place[_OUT]]
        if self.place[_LEFT]:
            out = np.concatenate([out, np.frombuffer(self._convert_left(entries), dtype=np.uint8)])
        _group(entries, starts, kinds, order)
        letters = self.letters[:]
        out.flags.writeable = letters.flags.writeable = False  # one type for the loops that read
        return Shredded(
            self.data, out, int(self.place[_ROW]), entries, order[: starts[-1]], starts, kinds,
            self.keys[:keys], letters,
        )  # fmt: skip

    def _larger(self, table: Any, used: int) -> Any:
        """Return a larger table: what the rest of the text will need if it is like what was read, or twice the room."""
        wanted = int(len(table) * 1.1 * len(self.data) / max(int(self.place[_AT]), 1))
        larger = np.empty(max(len(table) * 2, min(wanted, len(table) * 16)), dtype=table.dtype)
        larger[:used] = table[:used]
        return larger

    def _convert_left(self, entries: Any) -> bytes:
        """Convert one by one, in Python, what the loop left: deep nesting, numbers beyond 64 bits, close decimals."""
        made = bytearray()
        base = int(self.place[_OUT])
        kind = entries["kind"]
        left = (kind == BIG) | (kind == SLOW) | ((kind >= MAP) & (entries["word"] == LEFT))
        for at in np.flatnonzero(left & (entries["key"] >= 0)).tolist():
            start, end = int(entries["start"][at]), int(entries["end"][at])
            text = self.data[start:end].tobytes()
            if entries["kind"][at] == SLOW:
                entries["word"][at] = np.float64(float(text)).view(np.int64)
                entries["kind"][at] = REAL
                continue
            encoded = cbor2.dumps(json.loads(text), canonical=True)
            entries["word"][at] = base + len(made) << 32 | len(encoded)
            made += encoded
        return bytes(made)


@compiled
def _shred(
    data: Any, place: Any, entries: Any, keys: Any, slots: Any, letters: Any,
    out: Any, scratch: Any, marks: Any, levels: Any, seed: Any,
) -> Any:  # fmt: skip
    """Read lines from where ``place`` says, to the end, a mistake, or a line that a table has no room for."""
    at, row, count, to = place[_AT], place[_ROW], place[_COUNT], place[_OUT]
    while at < len(data):
        at = skip_blanks(data, at)
        if data[_U(at)] == 10:
            at += 1
            continue
        place[_AT], place[_ROW], place[_COUNT], place[_OUT] = at, row, count, to
        place[_STAMP] += 1
        stamp, guess, previous = place[_STAMP], np.int64(place[_FIRST]), np.int64(-1)
        if data[_U(at)] != 123:
            place[_WRONG] = at
            return NO_OBJECT
        at = skip_blanks(data, at + 1)
        is_open = data[_U(at)] != 125
        while is_open:
            if count == len(entries):
                return FULL_ENTRIES
            # 1. the key: most often the one that followed the same key in the line before
            if data[_U(at)] != 34:
                place[_WRONG] = at
                return NO_KEY
            key, length = np.int64(-1), np.int64(0)
            if guess < place[_KEYS]:
                length = np.int64(keys[guess].plain)
                if length >= 0 and _is_here(data, at + 1, letters, keys[guess].at + keys[guess].head, length):
                    key = guess
            if key >= 0:
                at += length + 2
            else:
                end, length, wrong = scan_text(data, at + 1)
                if wrong != FINE:
                    place[_WRONG] = end
                    return wrong
                key = _find_key(data, at + 1, end, length, place, keys, slots, letters, seed)
                if key < 0:
                    return key
                at = end + 1
            if previous < 0:
                place[_FIRST] = key
            else:
                keys[previous].next = key
            previous, guess = key, np.int64(keys[key].next)
            at = skip_blanks(data, at)
            if data[_U(at)] != 58:
                place[_WRONG] = at
                return NO_COLON
            at = skip_blanks(data, at + 1)
            # 2. the value
            begin, word, kind = at, np.int64(0), np.int64(-1)
            letter = data[_U(at)]
            if letter == 34:
                begin = at + 1
                end, word, wrong = scan_text(data, begin)
                if wrong != FINE:
                    place[_WRONG] = end
                    return wrong
                at, kind = end + 1, np.int64(TEXT)
            elif letter == 45 or letter == 73 or letter == 78 or _U(letter) - _U(48) <= _U(9):
                end, kind, word = scan_number(data, at)
                if kind < 0:
                    place[_WRONG] = end
                    return -1 - kind
                place[_LEFT] += kind in (BIG, SLOW)
                at = end
            elif letter == 123 or letter == 91:
                end, after, what = transcode(data, at, out, to, scratch, marks, levels)
                if what > 0:
                    place[_WRONG] = end
                    return what
                if what < LEFT:
                    return what
                at, kind, word = end, np.int64(MAP if letter == 123 else LIST), np.int64(LEFT)
                if what == LEFT:
                    place[_LEFT] += 1
                else:
                    word = to << 32 | (after - to)
                    to = after
            else:
                length, byte = scan_literal(data, at)
                if length == 0:
                    place[_WRONG] = at
                    return NO_VALUE
                at += length
                end = at
                if byte != 0xF6:
                    kind = np.int64(TRUE if byte == 0xF5 else FALSE)
            # 3. the entry: of keys that occur twice the last one counts
            if keys[key].stamp == stamp:
                entries[keys[key].entry].key = -1
            if kind >= 0:
                keys[key].stamp, keys[key].entry = stamp, count
                entries[count].word, entries[count].kind = word, kind
                entries[count].start, entries[count].end = begin, end if kind == TEXT else at
                entries[count].row, entries[count].key = row, key
                count += 1
            # 4. on, or out
            at = skip_blanks(data, at)
            if data[_U(at)] == 44:
                at = skip_blanks(data, at + 1)
            elif data[_U(at)] == 125:
                is_open = False
            else:
                place[_WRONG] = at
                return NO_COMMA
        at = skip_blanks(data, at + 1)
        if data[_U(at)] != 10:
            place[_WRONG] = at
            return NO_END
        at += 1
        row += 1
    place[_AT], place[_ROW], place[_COUNT], place[_OUT] = at, row, count, to
    return FINE


@part
def _is_here(data: Any, at: Any, letters: Any, start: Any, length: Any) -> Any:
    """Return whether these letters and a closing quote come next."""
    for i in range(length):
        if data[_U(at + i)] != letters[_U(start + i)]:
            return False
    return data[_U(at + length)] == 34


@part
def _find_key(
    data: Any, at: Any, end: Any, length: Any, place: Any, keys: Any, slots: Any, letters: Any, seed: Any
) -> Any:
    """Return the number of a key, a new one if need be, or a ``FULL_…``."""
    used = place[_USED]
    if used + length + 9 > len(letters):
        return FULL_LETTERS
    begin = put_head(letters, used, TEXT_HEAD, _U(length))
    stop = copy_text(data, at, end, length, letters, begin)
    hash, word, shift, is_plain = seed, _U(0), _U(0), True
    for i in range(begin, stop):
        letter = letters[_U(i)]
        is_plain = is_plain and letter >= 32 and letter != 34 and letter != 92
        word |= _U(letter) << shift
        shift += _U(8)
        if shift == _U(64):
            hash = stirred(hash, word)
            word, shift = _U(0), _U(0)
    hash = finished(stirred(hash, word) ^ _U(length))
    mask = _U(len(slots) - 1)
    slot = hash & mask
    while slots[slot] >= 0:
        key = np.int64(slots[slot])
        if keys[key].hash == hash and keys[key].size == stop - used:
            same = True
            for i in range(stop - used):
                if letters[_U(keys[key].at + i)] != letters[_U(used + i)]:
                    same = False
                    break
            if same:
                return key
        slot = (slot + _U(1)) & mask
    key = np.int64(place[_KEYS])
    if key == len(keys):
        return FULL_KEYS
    slots[slot] = key
    keys[key].hash, keys[key].at, keys[key].size, keys[key].head = hash, used, stop - used, begin - used
    keys[key].stamp, keys[key].entry, keys[key].next = 0, 0, key + 1
    keys[key].plain = length if is_plain else -1
    place[_USED], place[_KEYS] = stop, key + 1
    return key


@compiled
def _reinsert(keys: Any, slots: Any) -> None:
    mask = _U(len(slots) - 1)
    for key in range(len(keys)):
        slot = keys[key].hash & mask
        while slots[slot] >= 0:
            slot = (slot + _U(1)) & mask
        slots[slot] = key


@compiled
def _group(entries: Any, starts: Any, kinds: Any, order: Any) -> None:
    """Order the entries by key, the rows of each in order, and note which kinds a key has."""
    for i in range(len(entries)):
        key = entries[i].key
        if key >= 0:
            starts[key + 1] += 1
            kinds[key] |= 1 << entries[i].kind
    for key in range(len(kinds)):
        starts[key + 1] += starts[key]
    for i in range(len(entries)):
        key = entries[i].key
        if key >= 0:
            order[starts[key]] = i
            starts[key] += 1
    for key in range(len(kinds), 0, -1):
        starts[key] = starts[key - 1]
    starts[0] = 0
