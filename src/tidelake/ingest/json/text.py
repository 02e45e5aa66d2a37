"""Read the words of JSON text, compiled: strings with their escapes, numbers to the last bit.

The text must end with a newline. No word of JSON may hold one, so every loop here stops there at the latest and needs
no other bound. A double is the nearest to what was written (the method of Eisel and Lemire); the few numbers of more
than nineteen digits that it cannot settle are told apart as ``SLOW``. A number beyond all doubles is infinite, and the
words ``NaN``, ``Infinity`` and ``-Infinity`` are numbers, as Python writes them. It does not know objects, rows or
columns.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from tidelake.runtime.compiling import part, part_or

MAX_DIGITS = 4_300  # of one integer: Python reads no longer ones, and reading them is quadratic

# What a value is; nulls are not kept.
FALSE, TRUE, INT, WIDE, BIG, REAL, SLOW, TEXT, MAP, LIST = range(10)

# Why a text is not JSON, or is more than we take.
FINE, NO_VALUE, NO_KEY, NO_COLON, NO_COMMA, NO_OBJECT, NO_END = range(7)
BAD_NUMBER, BAD_RANGE, BAD_ESCAPE, BAD_SURROGATE, BAD_CONTROL, BAD_UTF8, TOO_DEEP = range(7, 14)

_U = np.uint64

_PLAIN, _QUOTE, _ESCAPE, _CONTROL, _WIDE = range(5)
_CLASSES = np.zeros(256, dtype=np.uint8)
_CLASSES[ord('"')], _CLASSES[ord("\\")] = _QUOTE, _ESCAPE
_CLASSES[:32], _CLASSES[128:] = _CONTROL, _WIDE

_HEX = np.full(256, -1, dtype=np.int8)
for _digit in range(16):
    _HEX[ord(f"{_digit:x}")] = _HEX[ord(f"{_digit:X}")] = _digit

_PLAIN_ESCAPES = np.zeros(256, dtype=np.uint8)  # the letter that a two-letter escape means, or 0
for _letter, _meaning in zip('"\\/bfnrt', '"\\/\b\f\n\r\t', strict=True):
    _PLAIN_ESCAPES[ord(_letter)] = ord(_meaning)

_ONES, _TOPS = _U(0x0101_0101_0101_0101), _U(0x8080_8080_8080_8080)
_PLACES = _U(0x0001_0203_0405_0607)  # times 1 << 8 * n, the top byte is n

_PLAIN_RUN = re.compile(rb'[^"\\\x00-\x1f\x80-\xff]*')

_INFINITY = np.frombuffer(b"Infinity", dtype=np.uint8)
_MIN_POWER, _MAX_POWER = -342, 308


def _powers_of_five() -> tuple[Any, Any]:
    """Return the top 128 bits of every power of five that a double can need.

    They are cut off, but for the few negative powers where only rounding up keeps every halfway case exact.
    """
    powers = []
    for exponent in range(_MIN_POWER, _MAX_POWER + 1):
        power = 5 ** abs(exponent)
        if exponent < 0:
            size = power.bit_length()
            power = (1 << (size + 127 if exponent >= -27 else 2 * size + 128)) // power + 1
        powers.append(power >> max(power.bit_length() - 128, 0) << max(128 - power.bit_length(), 0))
    high, low = [power >> 64 for power in powers], [power & (1 << 64) - 1 for power in powers]
    return np.array(high, dtype=np.uint64), np.array(low, dtype=np.uint64)


_FIVES_HIGH, _FIVES_LOW = _powers_of_five()


@part
def scan_text(data: Any, at: Any) -> Any:
    """Find the end of a string whose first letter is here: (place of the quote, bytes it means, what is wrong).

    The bytes it means are fewer than the bytes it takes exactly when it has escapes.
    """
    begin, saved = at, 0
    while True:
        at = _skip_plain(data, at)
        sort = _CLASSES[data[_U(at)]]
        if sort == _PLAIN:
            at += 1
        elif sort == _QUOTE:
            return at, at - begin - saved, FINE
        elif sort == _WIDE:
            size = _utf8_size(data, at)
            if size == 0:
                return at, 0, BAD_UTF8
            at += size
        elif sort == _CONTROL:
            return at, 0, BAD_CONTROL
        elif data[_U(at + 1)] != 117:  # not \u
            if _PLAIN_ESCAPES[data[_U(at + 1)]] == 0:
                return at, 0, BAD_ESCAPE
            saved += 1
            at += 2
        else:
            code = _escaped_code(data, at)
            if code < 0:
                return at, 0, BAD_ESCAPE if code == -1 else BAD_SURROGATE
            taken = 12 if code >= 0x10000 else 6
            saved += taken - _utf8_length(code)
            at += taken


def _skip_plain_by_pattern(data: Any, at: Any) -> Any:
    return _PLAIN_RUN.match(data, at).end()  # type: ignore[union-attr]


@part_or(_skip_plain_by_pattern)
def _skip_plain(data: Any, at: Any) -> Any:
    """Pass over letters that stand for themselves, eight at a time; some may be left."""
    while at + 8 <= len(data):
        word = load_word(data, at)
        quote, escape = word ^ (_ONES * _U(34)), word ^ (_ONES * _U(92))
        marks = (word - _ONES * _U(32)) & ~word | (quote - _ONES) & ~quote | (escape - _ONES) & ~escape | word
        marks = marks & _TOPS
        if marks:
            return at + np.int64(((marks & (~marks + _U(1))) >> _U(7)) * _PLACES >> _U(56))
        at += 8
    return at


@part
def unescape(data: Any, at: Any, end: Any, out: Any, to: Any) -> Any:
    """Write what a checked string means, and give the place after it."""
    while at < end:
        letter = data[_U(at)]
        if letter != 92:
            out[_U(to)] = letter
            at += 1
            to += 1
        elif data[_U(at + 1)] != 117:
            out[_U(to)] = _PLAIN_ESCAPES[data[_U(at + 1)]]
            at += 2
            to += 1
        else:
            code = _escaped_code(data, at)
            at += 12 if code >= 0x10000 else 6
            if code < 0x80:
                out[_U(to)] = code
                to += 1
                continue
            if code < 0x800:
                out[_U(to)] = 0xC0 | code >> 6
                to += 1
            else:
                if code < 0x10000:
                    out[_U(to)] = 0xE0 | code >> 12
                    to += 1
                else:
                    out[_U(to)] = 0xF0 | code >> 18
                    out[_U(to + 1)] = 0x80 | code >> 12 & 0x3F
                    to += 2
                out[_U(to)] = 0x80 | code >> 6 & 0x3F
                to += 1
            out[_U(to)] = 0x80 | code & 0x3F
            to += 1
    return to


@part
def copy_text(data: Any, at: Any, end: Any, length: Any, out: Any, to: Any) -> Any:
    """Write what a checked string of this meaning's length means, and give the place after it."""
    if length != end - at:
        return unescape(data, at, end, out, to)
    return copy_bytes(data, at, length, out, to)


def _copy_slice(data: Any, at: Any, length: Any, out: Any, to: Any) -> Any:
    out[to : to + length] = data[at : at + length]
    return to + length


@part_or(_copy_slice)
def copy_bytes(data: Any, at: Any, length: Any, out: Any, to: Any) -> Any:
    """Copy bytes and give the place after them."""
    end = to + length
    while to + 8 <= end:
        word = load_word(data, at)
        for i in range(8):
            out[_U(to + i)] = (word >> _U(8 * i)) & _U(0xFF)
        at += 8
        to += 8
    while to < end:
        out[_U(to)] = data[_U(at)]
        at += 1
        to += 1
    return end


@part
def scan_number(data: Any, at: Any) -> Any:
    """Read a number: (place after it, its kind, its 64 bits), or (place, -1 - what is wrong, 0).

    The bits are the value of an INT, the size without its sign of a WIDE one (beyond 63 bits, within 64), and the
    double of a REAL one. A BIG or SLOW number is left to the caller.
    """
    negative = data[_U(at)] == 45
    if negative:
        at += 1
    first = at
    if data[_U(at)] == 73 or (data[_U(at)] == 78 and not negative):
        return _scan_word(data, at, negative)
    word = _U(0)
    while True:
        digit = _U(data[_U(at)]) - _U(48)
        if digit > _U(9):
            break
        word = word * _U(10) + digit
        at += 1
    digits = at - first
    if digits == 0 or (digits > 1 and data[_U(first)] == 48):
        return first, -1 - BAD_NUMBER, np.int64(0)
    if data[_U(at)] != 46 and data[_U(at)] | 32 != 101:
        kind = _integer_kind(word, digits, negative, data[_U(first)])
        if kind < 0:
            return first, kind, np.int64(0)
        return at, kind, -np.int64(word) if negative and kind == INT else np.int64(word)
    power = 0
    if data[_U(at)] == 46:
        at += 1
        point = at
        while True:
            digit = _U(data[_U(at)]) - _U(48)
            if digit > _U(9):
                break
            word = word * _U(10) + digit
            at += 1
        power = point - at
        if power == 0:
            return at, -1 - BAD_NUMBER, np.int64(0)
    last = at
    if data[_U(at)] | 32 == 101:
        at += 1
        sign = data[_U(at)]
        if sign == 43 or sign == 45:
            at += 1
        exponent, start = 0, at
        while _U(data[_U(at)]) - _U(48) <= _U(9):
            exponent = min(exponent * 10 + int(data[_U(at)]) - 48, 1 << 40)
            at += 1
        if at == start:
            return at, -1 - BAD_NUMBER, np.int64(0)
        power += -exponent if sign == 45 else exponent
    kind = REAL
    if last - first <= 19:
        bits = nearest_double(word, power)
    else:
        word, dropped, exact = _leading_digits(data, first, last)
        bits = nearest_double(word, power + dropped)
        if not exact and nearest_double(word + _U(1), power + dropped) != bits:
            kind = SLOW
    return at, kind, np.int64(bits | _U(0x8000_0000_0000_0000) if negative else bits)


@part
def _scan_word(data: Any, at: Any, negative: Any) -> Any:
    """Read ``NaN`` or ``Infinity``, which JSON has not and many writers of it have."""
    if data[_U(at)] == 78:
        if data[_U(at + 1)] == 97 and data[_U(at + 2)] == 78:
            return at + 3, REAL, np.int64(0x7FF8_0000_0000_0000)
        return at, -1 - NO_VALUE, np.int64(0)
    for i in range(8):
        if data[_U(at + i)] != _INFINITY[i]:
            return at, -1 - NO_VALUE, np.int64(0)
    bits = _U(0x7FF0_0000_0000_0000)
    return at + 8, REAL, np.int64(bits | _U(0x8000_0000_0000_0000) if negative else bits)


@part
def nearest_double(word: Any, power: Any) -> Any:
    """Return the bits of the double nearest to ``word * 10**power``, infinity when there is none."""
    infinity = _U(0x7FF0_0000_0000_0000)
    if word == _U(0) or power < _MIN_POWER:
        return _U(0)
    if power > _MAX_POWER:
        return infinity
    zeros = _leading_zeros(word)
    word = word << zeros
    five = _U(power - _MIN_POWER)
    high, low = _product(word, _FIVES_HIGH[five])
    if high & _U(0x1FF) == _U(0x1FF):
        more, _ = _product(word, _FIVES_LOW[five])
        low = low + more
        if low < more:
            high = high + _U(1)
    top = high >> _U(63)
    mantissa = high >> (top + _U(9))
    exponent = (217706 * power >> 16) + 1086 + np.int64(top) - np.int64(zeros)
    if exponent <= 0:  # a subnormal number, or nothing
        if exponent <= -63:
            return _U(0)
        mantissa = mantissa >> _U(1 - exponent)
        return (mantissa + (mantissa & _U(1))) >> _U(1)  # its own top bit is the exponent when rounding made it normal
    exact_half = low <= _U(1) and -4 <= power <= 23 and mantissa & _U(3) == _U(1)
    if exact_half and mantissa << (top + _U(9)) == high:
        mantissa = mantissa & ~_U(1)
    mantissa = (mantissa + (mantissa & _U(1))) >> _U(1)
    if mantissa == _U(1) << _U(53):
        mantissa = _U(1) << _U(52)
        exponent += 1
    if exponent >= 0x7FF:
        return infinity
    return (mantissa & ~(_U(1) << _U(52))) | _U(exponent) << _U(52)


@part
def load_word(data: Any, at: Any) -> Any:
    """Read eight bytes, the first one lowest; the compiler makes it one load."""
    low = _U(data[_U(at)]) | _U(data[_U(at + 1)]) << _U(8) | _U(data[_U(at + 2)]) << _U(16)
    low |= _U(data[_U(at + 3)]) << _U(24) | _U(data[_U(at + 4)]) << _U(32) | _U(data[_U(at + 5)]) << _U(40)
    return low | _U(data[_U(at + 6)]) << _U(48) | _U(data[_U(at + 7)]) << _U(56)


@part
def _integer_kind(word: Any, digits: Any, negative: Any, first: Any) -> Any:
    if digits <= 18:
        return INT
    if digits == 19:
        return INT if word <= _U(0x7FFF_FFFF_FFFF_FFFF) + _U(negative) else WIDE
    if digits == 20 and first == 49 and word >= _U(10_000_000_000_000_000_000):  # else it went round past 2**64
        return WIDE
    return BIG if digits <= MAX_DIGITS else -1 - BAD_RANGE


@part
def _leading_digits(data: Any, at: Any, end: Any) -> Any:
    """Read the first nineteen digits that count: (their number, powers of ten left off, whether those are zeros)."""
    word, taken, dropped, exact = _U(0), 0, 0, True
    while at < end:
        digit = data[_U(at)]
        at += 1
        if digit == 46:
            continue
        if taken < 19:
            if taken > 0 or digit != 48:
                word = word * _U(10) + _U(digit) - _U(48)
                taken += 1
        else:
            dropped += 1
            exact = exact and digit == 48
    return word, dropped, exact


@part
def _product(left: Any, right: Any) -> Any:
    """Multiply to 128 bits: (high, low)."""
    mask, half = _U(0xFFFF_FFFF), _U(32)
    a, b = left >> half, left & mask
    c, d = right >> half, right & mask
    low = b * d
    middle = a * d + (low >> half)
    other = b * c + (middle & mask)
    return a * c + (middle >> half) + (other >> half), (other << half) | (low & mask)


@part
def _leading_zeros(word: Any) -> Any:
    zeros = _U(0)
    for step in (32, 16, 8, 4, 2, 1):
        if word >> _U(64 - step) == _U(0):
            word = word << _U(step)
            zeros += _U(step)
    return zeros


@part
def _utf8_length(code: Any) -> Any:
    if code < 0x80:
        return 1
    return 2 if code < 0x800 else 3 if code < 0x10000 else 4


@part
def _utf8_size(data: Any, at: Any) -> Any:
    """Return the bytes of the letter that begins here, or 0 where UTF-8 has none."""
    lead = data[_U(at)]
    if lead < 0xC2 or lead > 0xF4:
        return 0
    second = data[_U(at + 1)]
    if second & 0xC0 != 0x80:
        return 0
    if lead < 0xE0:
        return 2
    if (lead == 0xE0 and second < 0xA0) or (lead == 0xED and second > 0x9F):  # too long a form, or a surrogate
        return 0
    if data[_U(at + 2)] & 0xC0 != 0x80:
        return 0
    if lead < 0xF0:
        return 3
    if (lead == 0xF0 and second < 0x90) or (lead == 0xF4 and second > 0x8F):
        return 0
    return 4 if data[_U(at + 3)] & 0xC0 == 0x80 else 0


@part
def _hex_code(data: Any, at: Any) -> Any:
    code = np.int64(0)
    for i in range(4):
        digit = _HEX[data[_U(at + i)]]
        if digit < 0:
            return -1
        code = code << 4 | np.int64(digit)
    return code


@part
def _escaped_code(data: Any, at: Any) -> Any:
    """Read the letter of a ``\\u`` escape or of a pair of them; -1 for bad digits, -2 for half a pair."""
    code = _hex_code(data, at + 2)
    if code < 0xD800 or code > 0xDFFF:
        return code
    if code > 0xDBFF or data[_U(at + 6)] != 92 or data[_U(at + 7)] != 117:
        return -2
    low = _hex_code(data, at + 8)
    if low < 0xDC00 or low > 0xDFFF:
        return -1 if low < 0 else -2
    return 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00)
