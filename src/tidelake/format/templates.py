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
from tidelake.format.choosing import Choice
from tidelake.format.template_pages import (
    OWN_ROWS,
    SAME,
    SLOT_NUMBERS,
    Dictionary,
    Held,
    Laid,
    decode_numbers,
    laid_out,
    same_slot,
)
from tidelake.kernels.plain_templates import NUMBER, TEXT, WORD, Number
from tidelake.kernels.spreading import spread
from tidelake.kernels.template_loops import (
    Numbering,
    as_numbers,
    by_variable,
    count,
    gathered,
    places_of_rare,
    put_together,
    split,
)

MIN_ROWS = 256  # of an extent, below which there is nothing to learn
MIN_LETTERS = 12  # of a text on average: shorter ones have nothing in common but themselves
SAMPLE, SMALL_SAMPLE = 16_384, 1_024  # rows that show whether templates are worth it, of a long and of a short extent
SAMPLE_BYTES = 2 << 20  # of its letters, which show it as well where texts are long
GAIN = 0.92  # texts are put together more slowly than they are decompressed, so there must be something in it
CLEARLY = 0.95  # smaller, before each word is a variable: then templates are not those that queries ask for
MAX_TEMPLATES = 1 << 17  # of an extent: whoever reads a block decodes all of them
MAX_WORDS_BYTES = 16 << 20  # alike
SURELY = 0.7  # of what texts take at a low level: the high one does not reach that
WORD_SAMPLE = 8_192  # values of a variable that show whether its words repeat
WORDS_KNOWN = 1_024  # values of a variable in a sample that show it for good

MAX_AFFIX = 2**16 - 1  # bytes of what stands around a number, which pages tell in sixteen bits

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
    taken = max(SMALL_SAMPLE, min(SAMPLE, rows // 4, SAMPLE_BYTES * rows // letters))
    sample = largest.slice(max(0, (len(largest) - taken) // 2), taken)
    encoding = _begun(sample, rows, size)
    if encoding is None:
        return None
    form, choices, listing = None, _Choices(), postings.Choices()
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
    return Templated(found, tokens, encoding.templates.texts(), encoding.words.texts(), encoding.every_word)


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

    def page(self, choice: Choice) -> bytes:
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
    most_templates: int = MAX_TEMPLATES
    templates: Numbering = field(default_factory=Numbering)
    words: Numbering = field(default_factory=Numbering)
    are_words: dict[tuple[int, int], bool] = field(default_factory=dict)

    def block(self, values: pa.Array) -> _Block | None:
        """Take a block apart; None if there are too many templates or words."""
        found = split(values, every_word=self.every_word)
        ends = np.concatenate([[0], found.template_ends]).astype(np.int32)
        numbers = self.templates.add(found.templates, ends[:-1], np.diff(ends))
        if len(self.templates) > self.most_templates or self.words.byte_size > MAX_WORDS_BYTES:
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

    def go_on_from(self, sample: Sequence[_Variable]) -> None:
        """Keep what a sample showed for good: of which variables words repeat, and those, the most frequent first.

        Numbers that are the smaller the more often they come take less room.
        """
        sizes, counts = dict[tuple[int, int], int](), np.zeros(len(self.words), dtype=np.int64)
        for each in sample:
            at = each.template, each.slot
            sizes[at] = sizes.get(at, 0) + len(each.spans.starts)
        self.are_words = {at: told for at, told in self.are_words.items() if sizes.get(at, 0) >= WORDS_KNOWN}
        for each in sample:
            if each.numbers is not None and each.kind == WORD and (each.template, each.slot) in self.are_words:
                count(each.numbers, counts)
        order = np.argsort(-counts, kind="stable")
        kept = self.words.some(order[: int(np.count_nonzero(counts))])
        self.words, self.most_templates = Numbering(), MAX_TEMPLATES
        self.words.number(kept)

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
            count(codes, word_counts)
        templates, words = np.flatnonzero(counts), np.flatnonzero(word_counts)
        listed = np.flatnonzero(counts[made.templates] <= most)
        numbers, where = [(np.cumsum(counts > 0) - 1)[made.templates[listed]]], [listed]
        place = np.cumsum(word_counts > 0) - 1 + len(templates)
        for codes, template in coded:
            here = places_of_rare(codes, word_counts, most)
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
        self,
        letters: Any,
        starts: npt.NDArray[Any],
        lengths: npt.NDArray[Any],
        bounds: list[tuple[int, int]],
        templates: _Ints,
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
            elif form is not None and max(form.prefix, form.suffix) <= MAX_AFFIX:
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
    starts: npt.NDArray[Any]
    lengths: npt.NDArray[Any]

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
    starts, lengths = (np.concatenate(each) for each in zip(*(each[1:] for each in spans), strict=True))
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


class _Choices(dict[tuple[int, int], Choice]):
    """What was chosen for variables of the first block, by template and place; new ones are open."""

    def __missing__(self, at: tuple[int, int]) -> Choice:
        if self and not next(iter(self.values())).is_open:
            return Choice(is_open=False)  # and knows nothing: the first block did not have it
        self[at] = Choice()
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


def _begun(sample: pa.Array, rows: int, size: float | None) -> _Encoding | None:
    """Return what a sample taught of a column of so many rows, or None where templates make it not smaller."""
    (digits, by_digits), (words, by_words) = (_estimated(sample, rows, every_word=each) for each in (False, True))
    begun, expected = (words, by_words) if by_words < by_digits * CLEARLY else (digits, by_digits)
    if size is None:
        share = rows / len(sample)
        size = len(codecs.compressed(codecs.lengths_and_letters(sample)[1])) * share
        if expected > size * SURELY:  # then it matters how small texts are at the level of long texts
            size = len(codecs.encode_texts(sample)) * share
    return begun if expected <= size * GAIN else None


def _estimated(sample: pa.Array, rows: int, *, every_word: bool) -> tuple[_Encoding, float]:
    """Return what a sample taught, and the bytes of an extent of so many rows, by how its dictionaries grew in it."""
    encoding, half, choices = _Encoding(every_word, len(sample) // 2), len(sample) // 2, _Choices()
    pages, dictionaries, made = 0, list[int](), list[_Variable]()
    for part in (sample.slice(0, half), sample.slice(half)):
        block = encoding.block(part)
        if block is None:
            return encoding, math.inf
        pages += len(_column_page(part, block, choices)[0])
        dictionaries.append(
            sum(len(codecs.encode_texts(each.texts())) for each in (encoding.templates, encoding.words))
        )
        for choice in choices.values():
            choice.is_open = False
        made += block.variables
    growth = min(1.0, max(0.0, math.log2(dictionaries[1] / dictionaries[0])))
    share = rows / len(sample)
    encoding.go_on_from(made)
    return encoding, float(pages * share + dictionaries[1] * max(share, 1.0) ** growth)


def _letters(texts: pa.Array) -> int:
    _, offsets, _ = texts.buffers()
    places = np.frombuffer(offsets, np.int32)[texts.offset :] if len(texts) else _NO_INTS
    return int(places[len(texts)] - places[0]) if len(texts) else 0


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
    laid = laid_out(rest, np.bincount(numbers, minlength=dictionary.count), dictionary)
    needed = np.ones(dictionary.count, dtype=np.bool_)
    if wanted is not None:  # of other templates no variable is decoded
        needed[:] = False
        needed[numbers[wanted]] = True
    slots, held = _slots(laid, dictionary, needed)
    kept = _NO_BYTES if wanted is None else wanted.view(np.uint8)
    found = put_together(held.source(dictionary, numbers, kept, slots), laid.letters)
    if found is None:
        raise ValueError(f"templates make other than {laid.letters} bytes")
    return found


def _slots(laid: Laid, dictionary: Dictionary, needed: npt.NDArray[np.bool_]) -> tuple[_Ints, Held]:
    """Decode the variables of the templates of a block that are needed."""
    first_slot, held = dictionary.first_slot, Held()
    in_rest = laid.in_rest
    slots = np.zeros((len(in_rest), SLOT_NUMBERS), dtype=np.int64)
    slots[:, 1] = np.cumsum(in_rest) - in_rest
    if bool((np.repeat(needed, np.diff(first_slot)) & (in_rest > 0)).any()) or needed.all():
        held.put(laid.rest, TEXT, int(in_rest.sum()), dictionary)
    templates = np.searchsorted(first_slot, laid.own, "right") - 1
    told = zip(*(each.tolist() for each in (laid.own, templates, laid.kinds)), laid.pages, strict=True)
    for slot, template, kind, page in told:
        if not needed[template]:
            continue
        if kind == SAME:
            slots[slot] = slots[same_slot(page, slot, int(first_slot[template]))]
        else:
            slots[slot] = held.put(page, kind, int(laid.sizes[slot]), dictionary)
    return slots, held


def _joined(arrays: list[Any], kind: Any) -> npt.NDArray[Any]:
    return np.concatenate(arrays) if arrays else np.zeros(0, dtype=kind)
