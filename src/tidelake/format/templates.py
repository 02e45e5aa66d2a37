"""Store texts as templates and variables: what lines of a log have in common once, and the rest by what it is.

A text is split by ``kernels.template_loops``. The templates of a column, and the words that its variables share, are
dictionaries of the extent. In a block, the numbers of the templates come first, so that they are read alone; then
each variable of a template that many rows have has a page of its own, as numbers, as words of the dictionary or as
texts, and all others lie in the rest::

    20 | u32 length | templates of the rows | u32 bytes of all texts | u32 length | rest
       | u32 number of pages | u32 length | kinds | u32 length | lengths | page of a variable …

Whether a column is stored so, and whether words without a digit are variables too, is measured on a sample.
``docs/format.md`` is the specification. It does not lay out extents.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.format import codecs, postings
from tidelake.kernels.plain_templates import HOLE, NUMBER, PLACEHOLDER, TEXT, WORD, Number, Source
from tidelake.kernels.spreading import spread
from tidelake.kernels.template_loops import Numbering, as_numbers, by_variable, gathered, put_together, split

SAME = 3  # a variable that has the values of an earlier one of its template
OWN_ROWS = 128  # of a block that have a template, from which on its variables have pages of their own
MIN_ROWS = 256  # of an extent, below which there is nothing to learn
MIN_LETTERS = 12  # of a text on average: shorter ones have nothing in common but themselves
SAMPLE = 16_384  # rows that show whether templates are worth it
GAIN = 0.92  # texts are put together more slowly than they are decompressed, so there must be something in it
CLEARLY = 0.95  # smaller, before each word is a variable: then templates are not those that queries ask for
MAX_TEMPLATES = 1 << 17  # of an extent: whoever reads a block decodes all of them
MAX_WORDS_BYTES = 16 << 20  # alike
WORD_SAMPLE = 8_192  # values of a variable that show whether its words repeat

_Ints = npt.NDArray[np.int64]
_NO_INTS: _Ints = np.zeros(0, dtype=np.int64)
_NO_BYTES: npt.NDArray[np.uint8] = np.zeros(0, dtype=np.uint8)


class BlockBytes(NamedTuple):
    """The page of a block, how many of its bytes tell the templates, and its postings if there are any."""

    page: bytes
    head: int
    postings: bytes | None


class Templated(NamedTuple):
    """A column, encoded: its blocks, texts with the tokens of each, and the dictionaries."""

    blocks: Sequence[Future[BlockBytes]]
    tokens: Sequence[pa.Array]
    templates: pa.Array
    words: pa.Array
    every_word: bool


def templated(blocks: Sequence[pa.Array], size: float | None, pool: Executor) -> Templated | None:
    """Encode the blocks of a text column by templates, if that makes them smaller than ``size``, or than as texts."""
    present = [block.drop_null() if block.null_count else block for block in blocks]
    rows, letters = sum(map(len, present)), sum(map(_letters, present))
    if rows < MIN_ROWS or letters < MIN_LETTERS * rows:
        return None
    largest = max(present, key=len)
    sample = largest.slice(max(0, (len(largest) - SAMPLE) // 2), SAMPLE)
    if size is None:
        size = len(codecs.encode_texts(sample)) * rows / len(sample)
    by_digits, by_words = (_estimate(sample, rows, every_word=each) for each in (False, True))
    every_word = by_words < by_digits * CLEARLY
    expected = by_words if every_word else by_digits
    if expected > size * GAIN:
        return None
    encoding, form, choices, listing = _Encoding(every_word), None, _Choices(), postings.Choices()
    found: list[Future[BlockBytes]] = []
    tokens = []
    for block, values in zip(blocks, present, strict=True):
        made = encoding.block(values)
        if made is None:
            return None
        words = encoding.words_of(block, made, postings.listed_rows(form) if found else postings.MANY)
        if not found:  # the first block says for all how variables are encoded and postings kept
            page, head = _column_page(block, made, choices)
            form = postings.chosen_form(words, block, len(page))
            found.append(_done(_with_postings(page, head, words, form, listing)))
            for choice in (*choices.values(), *listing):
                choice.is_open = False
        else:
            found.append(pool.submit(_block_bytes, block, made, words, form, choices, listing))
        tokens.append(words.joined())
    return Templated(found, tokens, encoding.templates.texts(), encoding.words.texts(), every_word)


def _with_postings(
    page: bytes, head: int, words: postings.Words, form: postings.Form | None, listing: postings.Choices
) -> BlockBytes:
    return BlockBytes(page, head, None if form is None else postings.encode(words, form, listing))


def _block_bytes(
    block: pa.Array,
    made: _Block,
    words: postings.Words,
    form: postings.Form | None,
    choices: _Choices,
    listing: postings.Choices,
) -> BlockBytes:
    return _with_postings(*_column_page(block, made, choices), words, form, listing)


def _done(found: BlockBytes) -> Future[BlockBytes]:
    made: Future[BlockBytes] = Future()
    made.set_result(found)
    return made


@dataclass(frozen=True, slots=True)
class _Variable:
    """The values of one variable in one block."""

    kind: int
    head: bytes
    template: int
    slot: int
    spans: _Spans
    numbers: _Ints | None = None
    texts: pa.Array | None = None

    def page(self, choice: codecs.Choice) -> bytes:
        if self.texts is not None:
            return self.head + codecs.encode_texts(self.texts, choice)
        return self.head if self.numbers is None else self.head + codecs.encode_ints(self.numbers, choice)


class _Block(NamedTuple):
    templates: _Ints
    letters: int
    rest: pa.Array
    rest_sizes: tuple[_Ints, _Ints]  # of each variable in the rest: its template, and how many values it has
    variables: Sequence[_Variable]


@dataclass(slots=True)
class _Encoding:
    """What is learned of a column, block by block."""

    every_word: bool
    templates: Numbering = field(default_factory=Numbering)
    words: Numbering = field(default_factory=Numbering)
    are_words: dict[tuple[int, int], bool] = field(default_factory=dict)

    def block(self, values: pa.Array) -> _Block | None:
        """Take a block apart; None if there are too many templates or words."""
        found = split(values, every_word=self.every_word)
        begins = np.concatenate([[0], found.template_ends[:-1]]) if len(values) else _NO_INTS
        sizes = found.template_ends - begins
        numbers = self.templates.add(found.templates, begins, sizes)
        if len(self.templates) > MAX_TEMPLATES or self.words.byte_size > MAX_WORDS_BYTES:
            return None
        holes = np.zeros(len(self.templates), dtype=np.int64)
        holes[numbers] = found.counts
        counts = np.bincount(numbers, minlength=len(holes))
        of_template = np.repeat(np.arange(len(holes)), holes)
        bounds = np.concatenate([[0], np.cumsum(counts[of_template])])
        starts, lengths = by_variable(found, numbers, bounds, np.cumsum(holes) - holes)
        is_own = counts[of_template] >= OWN_ROWS
        own_bounds = [(int(bounds[at]), int(bounds[at + 1])) for at in np.flatnonzero(is_own)]
        in_rest = np.repeat(~is_own, np.diff(bounds))
        rest = gathered(found.letters, starts[in_rest], lengths[in_rest])
        variables = list(self._variables(found.letters, starts, lengths, own_bounds, of_template[is_own]))
        rest_sizes = of_template[~is_own], np.diff(bounds)[~is_own]
        return _Block(numbers, _letters(values), rest, rest_sizes, variables)

    def words_of(self, block: pa.Array, made: _Block, most: int = postings.MANY) -> postings.Words:
        """Return which words the rows of a block hold, by what it was taken apart into.

        Rows are listed of words that no more than ``most`` of them have.
        """
        rows = np.flatnonzero(block.is_valid().to_numpy(zero_copy_only=False)) if block.null_count else None
        counts = np.bincount(made.templates, minlength=1)
        small = np.uint16 if len(counts) < 2**16 else np.int64  # those are sorted by their digits
        order = np.argsort(made.templates.astype(small), kind="stable")
        starts = np.cumsum(counts) - counts

        def rows_of(template: int) -> _Ints:
            return np.asarray(order[int(starts[template]) : int(starts[template]) + int(counts[template])])

        coded = [
            (each.numbers, each.template) for each in made.variables if each.numbers is not None and each.kind == WORD
        ]
        word_counts = np.zeros(len(self.words), dtype=np.int64)
        for codes, _ in coded:
            word_counts += np.bincount(codes, minlength=len(word_counts))
        templates, words = np.flatnonzero(counts), np.flatnonzero(word_counts)
        listed = np.flatnonzero(counts[made.templates] <= most)
        numbers, where = [(np.cumsum(counts > 0) - 1)[made.templates[listed]]], [listed]
        is_listed, place = word_counts <= most, np.cumsum(word_counts > 0) - 1 + len(templates)
        for codes, template in coded:
            here = np.flatnonzero(is_listed[codes])
            numbers.append(place[codes[here]])
            where.append(rows_of(template)[here])
        spans = [each for each in made.variables if each.kind in (NUMBER, TEXT)]
        of_templates, sizes = made.rest_sizes
        steps = np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        in_rest = order[np.repeat(starts[of_templates], sizes) + steps]
        texts = [gathered(*_joined_spans([each.spans for each in spans])), made.rest] if spans else [made.rest]
        in_spans = _joined([*(rows_of(each.template) for each in spans), in_rest], np.int64)
        return postings.Words(
            pa.concat_arrays([self.templates.some(templates), self.words.some(words)]),
            np.concatenate([counts[templates], word_counts[words]]),
            np.concatenate(numbers),
            np.concatenate(where) if rows is None else rows[np.concatenate(where)],
            pa.concat_arrays(texts),
            in_spans if rows is None else rows[in_spans],
        )

    def _variables(
        self, letters: Any, starts: _Ints, lengths: _Ints, bounds: list[tuple[int, int]], templates: _Ints
    ) -> Iterator[_Variable]:
        if not bounds:
            return
        if len(starts) != sum(last - first for first, last in bounds):
            places = np.concatenate([np.arange(*each) for each in bounds])
            starts, lengths = starts[places], lengths[places]
        ends = np.concatenate([[0], np.cumsum([last - first for first, last in bounds])])
        numbers, forms = as_numbers(letters, starts, lengths, ends)
        slot, before, seen = 0, -1, list[_Spans]()
        for at, (template, form) in enumerate(zip(templates.tolist(), forms, strict=True)):
            slot, seen = (slot + 1, seen) if template == before else (0, [])
            before, own = template, slice(int(ends[at]), int(ends[at + 1]))
            spans = _Spans(letters, starts[own], lengths[own])
            if (earlier := spans.same_as(seen)) is not None:
                yield _Variable(SAME, struct.pack("<H", earlier), template, slot, spans)
            elif form is not None:
                yield _number((template, slot), spans, form, numbers[own])
            else:
                yield self._texts((template, slot), spans)
            seen.append(spans)

    def _texts(self, at: tuple[int, int], spans: _Spans) -> _Variable:
        if at not in self.are_words:
            self.are_words[at] = _repeat(
                gathered(spans.letters, spans.starts[:WORD_SAMPLE], spans.lengths[:WORD_SAMPLE])
            )
        if not self.are_words[at]:
            return _Variable(TEXT, b"", *at, spans, texts=gathered(*spans))
        return _Variable(WORD, b"", *at, spans, self.words.add(*spans))


class _Spans(NamedTuple):
    """The values of a variable, as spans of letters."""

    letters: npt.NDArray[np.uint8]
    starts: _Ints
    lengths: _Ints

    def first(self) -> bytes:
        """Return the first value."""
        return self.letters[int(self.starts[0]) : int(self.starts[0]) + int(self.lengths[0])].tobytes()

    def same_as(self, others: Sequence[_Spans]) -> int | None:
        """Return which of the others has the same values."""
        first = self.first()
        for at, other in enumerate(others[: 2**16]):
            if first != other.first() or not np.array_equal(self.lengths, other.lengths):
                continue
            if gathered(*self).equals(gathered(*other)):
                return at
        return None


def _joined_spans(spans: Sequence[_Spans]) -> _Spans:
    starts, lengths = (_joined(list(each), np.int64) for each in zip(*(each[1:] for each in spans), strict=True))
    return _Spans(spans[0].letters, starts, lengths)


def _number(at: tuple[int, int], spans: _Spans, form: Number, numbers: _Ints) -> _Variable:
    first = spans.first()
    prefix, suffix = first[: form.prefix], first[len(first) - form.suffix :]
    head = struct.pack("<BHH", form.width, len(prefix), len(suffix)) + prefix + suffix
    return _Variable(NUMBER, head, *at, spans, numbers)


def _repeat(texts: pa.Array) -> bool:
    """Whether words of a dictionary are smaller than texts; others may share the dictionary, so half of it counts."""
    coded = pc.dictionary_encode(texts)
    if len(coded.dictionary) * 2 > len(texts):
        return False
    as_words = len(codecs.encode_texts(coded.dictionary)) // 2 + len(codecs.encode_ints(_int64(coded.indices)))
    return as_words < len(codecs.encode_texts(texts))


def _int64(indices: pa.Array) -> _Ints:
    return np.asarray(indices.to_numpy(), dtype=np.int64)


class _Choices(dict[tuple[int, int], codecs.Choice]):
    """What was chosen for variables of the first block, by template and place; new ones are open."""

    def __missing__(self, at: tuple[int, int]) -> codecs.Choice:
        if self and not next(iter(self.values())).is_open:
            return codecs.Choice(is_open=False)  # and knows nothing: the first block did not have it
        self[at] = codecs.Choice()
        return self[at]


def _column_page(block: pa.Array, made: _Block, choices: _Choices | None = None) -> tuple[bytes, int]:
    """Encode a block; say also how many bytes tell the templates, from the first on."""
    choices = _Choices() if choices is None else choices
    templates = codecs.encode_ints(made.templates, choices[-1, -1])
    pages = [each.page(choices[each.template, each.slot]) for each in made.variables]
    head = codecs.nulls_head(block)
    if head[0] == codecs.ALL_NULLS:
        return head, len(head)
    head += struct.pack("<BI", codecs.TEXT_TEMPLATES, len(templates)) + templates
    rest = codecs.encode_texts(made.rest)
    lists = [np.array(each, dtype=np.int64) for each in ([v.kind for v in made.variables], list(map(len, pages)))]
    described = b"".join(struct.pack("<I", len(each)) + each for each in map(codecs.encode_ints, lists))
    sizes = struct.pack("<II", made.letters, len(rest)) + rest + struct.pack("<I", len(pages))
    return head + sizes + described + b"".join(pages), len(head)


def _estimate(sample: pa.Array, rows: int, *, every_word: bool) -> float:
    """Return the bytes of an extent of so many rows, by those of a sample, and of how its dictionaries grew in it."""
    encoding = _Encoding(every_word)
    half = len(sample) // 2
    pages, dictionaries = 0, []
    for part in (sample.slice(0, half), sample.slice(half)):
        made = encoding.block(part)
        if made is None or len(encoding.templates) * 2 > len(sample):
            return math.inf
        pages += len(_column_page(part, made)[0])
        dictionaries.append(
            sum(len(codecs.encode_texts(each.texts())) for each in (encoding.templates, encoding.words))
        )
    growth = min(1.0, max(0.0, math.log2(dictionaries[1] / dictionaries[0])))
    share = rows / len(sample)
    return float(pages * share + dictionaries[1] * max(share, 1.0) ** growth)


def _letters(texts: pa.Array) -> int:
    _, offsets, _ = texts.buffers()
    places = np.frombuffer(offsets, np.int32)[texts.offset :] if len(texts) else _NO_INTS
    return int(places[len(texts)] - places[0]) if len(texts) else 0


class Dictionary:
    """The templates and words of a column in an extent, ready to be used."""

    def __init__(self, templates: pa.Array, words: pa.Array, *, every_word: bool) -> None:
        lengths, letters = codecs.lengths_and_letters(templates)
        data = np.frombuffer(letters, np.uint8)
        ends = np.cumsum(lengths)
        is_hole = data == HOLE
        before = np.concatenate([[0], np.cumsum(is_hole)])
        holes = np.flatnonzero(is_hole)
        cuts = np.concatenate([holes * 2 + 1, ends * 2])  # where pieces end; a template ends before the next begins
        cuts.sort()
        cuts //= 2
        self.count, self.every_word = len(templates), every_word
        self.pieces = data[~is_hole]
        self.piece_ends = np.concatenate([[0], cuts - before[cuts]])
        self.first_slot = np.concatenate([[0], before[ends]])
        self.first_piece = self.first_slot[:-1] + np.arange(len(templates))
        self.words, self.word_ends = _texts(words)
        self._templates = templates
        self._shown: pa.Array | None = None

    def shown(self) -> pa.Array | None:
        """Return the templates as ``message_template`` has them; None if they are not the same."""
        if self._shown is None and not self.every_word:
            self._shown = self._as_shown()
        return self._shown

    def _as_shown(self) -> pa.Array:
        places = np.concatenate([[0], np.cumsum(np.diff(self.first_slot) * (len(PLACEHOLDER) - 1))])
        lengths, letters = codecs.lengths_and_letters(self._templates)
        offsets = (np.concatenate([[0], np.cumsum(lengths)]) + places).astype(np.int32)
        data = letters.replace(bytes([HOLE]), PLACEHOLDER.encode())
        return pa.Array.from_buffers(pa.utf8(), len(lengths), [None, pa.py_buffer(offsets), pa.py_buffer(data)], 0)


def decode_numbers(page: memoryview, count: int, dictionary: Dictionary) -> tuple[_Ints, memoryview]:
    """Read the numbers of the templates of rows that have a text; and what comes after them."""
    if len(page) < 5 or page[0] != codecs.TEXT_TEMPLATES:
        raise ValueError("no templates")
    own, rest = cut(page[1:])
    found = codecs.decode_ints(own, count)
    _check_below(found, dictionary.count)
    return found, rest


def decode_column(
    page: memoryview, rows: int, dictionary: Dictionary, wanted: npt.NDArray[np.bool_] | None = None
) -> pa.Array:
    """Decode a column of a block; texts of rows that are not wanted are empty."""
    valid, rest = codecs.decode_nulls(page, rows)
    if not valid.any():
        return pa.nulls(rows, pa.utf8())
    dense = decode(rest, int(valid.sum()), dictionary, wanted if wanted is None else wanted[valid])
    return dense if valid.all() else spread(dense, valid)


def decode_shown(head: memoryview, rows: int, dictionary: Dictionary) -> pa.DictionaryArray | None:
    """Return the templates of rows as ``message_template`` has them; None if they are not the same."""
    valid, rest = codecs.decode_nulls(head, rows)
    if (words := dictionary.shown()) is None:
        return None
    numbers = decode_numbers(rest, int(valid.sum()), dictionary)[0] if valid.any() else _NO_INTS
    dense = pa.DictionaryArray.from_arrays(pa.array(numbers.astype(np.int32)), words)
    return dense if valid.all() else spread(dense, valid)


def decode(page: memoryview, count: int, dictionary: Dictionary, wanted: npt.NDArray[np.bool_] | None) -> pa.Array:
    """Put the texts of a page together; those of rows that are not wanted are empty."""
    numbers, rest = decode_numbers(page, count, dictionary)
    if len(rest) < 4:
        raise ValueError("a page of templates that ends early")
    (size,) = struct.unpack_from("<I", rest)
    if size > codecs.MAX_BYTES:
        raise ValueError(f"texts of {size} bytes")
    rest_page, rest = cut(rest[4:])
    needed = np.ones(dictionary.count, dtype=np.bool_)
    if wanted is not None:  # of other templates no variable is decoded
        needed[:] = False
        needed[numbers[wanted]] = True
    slots, held = _slots(numbers, dictionary, rest_page, rest, needed)
    found = put_together(
        Source(
            numbers, _NO_BYTES if wanted is None else wanted.view(np.uint8), dictionary.first_piece,
            dictionary.piece_ends, dictionary.pieces, dictionary.first_slot, slots, _joined(held.numbers, np.int64),
            *_joined_texts(held.texts), dictionary.word_ends, dictionary.words,
            np.frombuffer(b"".join(held.affixes), np.uint8),
        ),
        size,
    )  # fmt: skip
    if found is None:
        raise ValueError(f"templates make other than {size} bytes")
    return found


@dataclass(slots=True)
class _Held:
    """The values of all variables of a block so far: numbers, texts, and what stands around numbers."""

    numbers: list[_Ints] = field(default_factory=list)
    texts: list[pa.Array] = field(default_factory=list)
    affixes: list[bytes] = field(default_factory=list)
    counts: list[int] = field(default_factory=lambda: [0, 0, 0])

    def put(self, page: memoryview, kind: int, count: int, dictionary: Dictionary) -> list[int]:
        """Decode the values of a variable; return its slot, as ``Source`` has them."""
        if kind == TEXT:
            self.texts.append(codecs.decode_texts(page, count, pa.binary()))
            return [TEXT, self._moved(1, count), 0, 0, 0, 0]
        if kind == WORD:
            found = codecs.decode_ints(page, count)
            _check_below(found, len(dictionary.word_ends) - 1)
            self.numbers.append(found)
            return [WORD, self._moved(0, count), 0, 0, 0, 0]
        if kind != NUMBER or len(page) < 5:
            raise ValueError(f"a variable of kind {kind}")
        width, prefix, suffix = struct.unpack_from("<BHH", page)
        if width > 64 or 5 + prefix + suffix > len(page):
            raise ValueError("a variable whose prefix ends past its page")
        found = codecs.decode_ints(page[5 + prefix + suffix :], count)
        if len(found) and int(found.min()) < 0:
            raise ValueError("a negative number among digits")
        self.numbers.append(found)
        self.affixes.append(bytes(page[5 : 5 + prefix + suffix]))
        at = self._moved(2, prefix + suffix)
        return [NUMBER, self._moved(0, count), width, at, at + prefix, at + prefix + suffix]

    def _moved(self, which: int, count: int) -> int:
        self.counts[which] += count
        return self.counts[which] - count


def _slots(
    numbers: _Ints, dictionary: Dictionary, rest: memoryview, data: memoryview, needed: npt.NDArray[np.bool_]
) -> tuple[_Ints, _Held]:
    """Decode the variables of the templates of a block that are needed."""
    counts = np.bincount(numbers, minlength=dictionary.count)
    first_slot, held = dictionary.first_slot, _Held()
    sizes = np.repeat(counts, np.diff(first_slot))  # of the values of each variable
    in_rest = np.where(sizes < OWN_ROWS, sizes, 0)
    slots = np.zeros((len(sizes), 6), dtype=np.int64)
    slots[:, 1] = np.cumsum(in_rest) - in_rest
    if bool((np.repeat(needed, np.diff(first_slot)) & (in_rest > 0)).any()) or needed.all():
        held.put(rest, TEXT, int(in_rest.sum()), dictionary)
    if len(data) < 4:
        raise ValueError("a page of templates that ends early")
    (count,) = struct.unpack_from("<I", data)
    own = np.flatnonzero(sizes >= OWN_ROWS)
    if count != len(own):
        raise ValueError(f"{count} pages of {len(own)} variables")
    kinds_page, data = cut(data[4:])
    lengths_page, data = cut(data)
    kinds, lengths = codecs.decode_ints(kinds_page, count), codecs.decode_ints(lengths_page, count)
    if (count and not 0 <= int(lengths.min()) <= int(lengths.max()) <= len(data)) or int(lengths.sum()) != len(data):
        raise ValueError("pages that end elsewhere than their block")
    templates = np.searchsorted(first_slot, own, "right") - 1
    at = 0
    for slot, template, kind, length in zip(*(each.tolist() for each in (own, templates, kinds, lengths)), strict=True):
        page = data[at : at + length]
        at += length
        if not needed[template]:
            continue
        if kind != SAME:
            slots[slot] = held.put(page, kind, int(sizes[slot]), dictionary)
            continue
        source = int(first_slot[template]) + int.from_bytes(page[:2], "little")
        if len(page) != 2 or source >= slot:
            raise ValueError("a variable that is the same as a later one")
        slots[slot] = slots[source]
    return slots, held


def cut(data: memoryview) -> tuple[memoryview, memoryview]:
    """Cut off a part with its length before it."""
    if len(data) < 4:
        raise ValueError("a part that ends early")
    (size,) = struct.unpack_from("<I", data)
    if size > len(data) - 4:
        raise ValueError("a part that ends past its page")
    return data[4 : 4 + size], data[4 + size :]


def _joined(arrays: list[Any], kind: Any) -> npt.NDArray[Any]:
    return np.concatenate(arrays) if arrays else np.zeros(0, dtype=kind)


def _texts(texts: pa.Array) -> tuple[npt.NDArray[np.uint8], _Ints]:
    lengths, letters = codecs.lengths_and_letters(texts)
    return np.frombuffer(letters, np.uint8), np.concatenate([[0], np.cumsum(lengths)])


def _joined_texts(arrays: list[pa.Array]) -> tuple[_Ints, npt.NDArray[np.uint8]]:
    found = [_texts(each) for each in arrays]
    lengths = _joined([np.diff(ends) for _, ends in found], np.int64)
    return np.concatenate([[0], np.cumsum(lengths)]), _joined([letters for letters, _ in found], np.uint8)


def _check_below(numbers: _Ints, end: int) -> None:
    if len(numbers) and (int(numbers.min()) < 0 or int(numbers.max()) >= end):
        raise ValueError(f"a number that is not below {end}")
