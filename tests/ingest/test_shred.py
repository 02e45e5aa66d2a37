"""JSON text to values: every byte is checked, every number exact, every nested value canonical."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from decimal import Decimal, localcontext
from fractions import Fraction
from pathlib import Path
from typing import Any

import cbor2
import orjson
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tidelake.dynamic.values import MAX_DEPTH, decode
from tidelake.errors import InvalidInputError
from tidelake.ingest import OVERFLOW_COLUMN, Coerced, Rules, coerce_ndjson
from tidelake.model.schema import Schema

RULES = Rules()
ANY = Schema.of({"v": "dynamic"})
REAL = Schema.of({"v": "real"})
TEXT = Schema.of({"v": "string"})

TEXTS = st.text(st.characters(codec="utf-8"), max_size=30) | st.sampled_from(
    [
        "",
        "é",
        "€",
        "😀",
        "\x00\x1f\x7f",
        '"\\/\b\f\n\r\t',
        "\u2028",
        "x" * 23,
        "x" * 24,
        "x" * 255,
        "x" * 256,
        "\ud7ff\ue000",
    ]
)
DOUBLES = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from(
    [0.0, -0.0, 0.5, 65504.0, 65505.0, 2.0**-14, 2.0**-24, 2.0**-25, 2.0**127, 2.0**128, 2.0**-126, 2.0**-149, 5e-324]
)
INTEGERS = (
    st.integers()
    | st.integers(-(2**80), 2**80)
    | st.sampled_from(
        [
            sign * (2**bits + step)
            for sign in (1, -1)
            for bits in (0, 5, 8, 16, 31, 32, 53, 63, 64)
            for step in (-1, 0, 1)
        ]
    )
)
SCALARS = st.none() | st.booleans() | INTEGERS | DOUBLES | TEXTS
VALUES: st.SearchStrategy[Any] = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=30) | st.dictionaries(TEXTS, inner, max_size=30),
    max_leaves=25,
)
LINE = (
    '{"ts":"2026-01-01T00:00:00.123Z","é\\n":"a\\u00e9\\ud83d\\ude00","n":-12.5e-3,"i":200,"t":true,"f":false,'
    '"x":null,"o":{"b":[1,2.5,"z",{"a":{}}],"a":null,"b":18446744073709551615}}'
)

HOSTILE = (  # lines that begin like a key of the line before, which has escapes
    b'{"k\\n":1}\n{"k',
    b'{"k\\n":1}\n{"k\n":2}',
    b'{"k\\"":1}\n{"k"":2}',
    b'{"k\\"":1}\n{"k":2}',
    b'{"k\\\\":1}\n{"k\\":2}',
    b'{"k\\u00e9":1}\n{"k\xc3\xa9":2}\n{"k\xc3":3}',
)


def lines(values: list[Any], *, ascii: bool = True, spaces: bool = False) -> bytes:
    """Write values as NDJSON under one key."""
    separators = (" , ", "\t: ") if spaces else (",", ":")
    return "".join(
        json.dumps({"v": value}, ensure_ascii=ascii, separators=separators) + "\n" for value in values
    ).encode()


def merged(coerced: Coerced) -> list[dict[str, Any]]:
    """Return each row's values by key: typed columns, and what the overflow map has."""
    rows = []
    for row in coerced.batch.to_pylist():
        spilled = row.pop(OVERFLOW_COLUMN, None)
        held = {
            column.name: decode(row[column.name]) if column.type.kind == "dynamic" else row[column.name]
            for column in coerced.schema
            if row.get(column.name) is not None
        }
        rows.append(held | (decode(spilled) if spilled else {}))
    return rows


@given(st.lists(VALUES.filter(lambda value: value is not None), min_size=1, max_size=5), st.booleans(), st.booleans())
@settings(max_examples=200, deadline=None)
def test_transcoder_gives_the_bytes_of_canonical_cbor_for_any_json(
    values: list[Any], ascii: bool, spaces: bool
) -> None:
    coerced = coerce_ndjson(lines(values, ascii=ascii, spaces=spaces), ANY, RULES)
    assert coerced.batch.column("v").to_pylist() == [cbor2.dumps(value, canonical=True) for value in values]
    assert (coerced.schema, coerced.overflowed) == (ANY, 0)


@pytest.mark.parametrize("size", [2, 23, 24, 25, 48, 49, 255, 256, 257, 1000, 70_000])
def test_transcoder_orders_maps_of_any_size(size: int) -> None:
    keys = [f"{at * 7919 % size:x}" for at in range(size)]
    value = {"outer": {key: at for at, key in enumerate(keys)}, "list": list(range(size))}
    [found] = coerce_ndjson(lines([value]), ANY, RULES).batch.column("v").to_pylist()
    assert found == cbor2.dumps(value, canonical=True)


def test_transcoder_keeps_the_last_of_equal_keys_at_every_level() -> None:
    twice = ",".join(f'"k{at % 24}":{at}' for at in range(48))
    text = f'{{"v":1,"v":{{"b":1,"a":2,"b":{{{twice}}},"\\u0061":3}},"n":5,"n":null}}\n'
    coerced = coerce_ndjson(text.encode(), ANY, RULES)
    value = {"a": 3, "b": {f"k{at}": at + 24 for at in range(24)}}
    assert coerced.batch.column("v").to_pylist() == [cbor2.dumps(value, canonical=True)]
    assert coerced.schema == ANY
    in_order = coerce_ndjson(b'{"v":{"a":1,"a":2,"b":[{"c":1,"c":{}}]}}', ANY, RULES)
    assert in_order.batch.column("v").to_pylist() == [cbor2.dumps({"a": 2, "b": [{"c": {}}]}, canonical=True)]


@given(
    st.lists(
        DOUBLES.map(repr)
        | st.decimals(allow_nan=False, allow_infinity=False, places=3).map("{:.3f}".format)
        | st.tuples(st.integers(), st.integers(0, 10**25), st.integers(-400, 330)).map(
            lambda t: f"{t[0]}.{t[1]}e{t[2]}"
        )
        | st.tuples(st.integers(0, 10**19), st.integers(-30, 30)).map(lambda t: f"{t[0]}E{t[1]:+d}"),
        min_size=1,
        max_size=30,
    )
)
@example(["0e999999999999999999999", "0.0e-999999999999999999999", "1e-400", "-0.0", "1E5", "0.1e1"])
@example(["2.2250738585072011e-308", "4.9e-324", "2.4703282292062327e-324", "2.4703282292062328e-324"])
@example(["1.7976931348623157e308", "1.7976931348623158079e308", "9007199254740993.0", "9007199254740995.00"])
@example(
    ["0." + "0" * 400 + "1e401", "1" + "0" * 400 + "e-400", "123456789012345678901234567890.5", "8" * 500 + "e-500"]
)
@settings(max_examples=300, deadline=None)
def test_doubles_are_the_nearest_to_what_was_written(texts: list[str]) -> None:
    texts = [text if set(".eE") & set(text) else text + ".0" for text in texts]
    texts = [text for text in texts if math.isfinite(float(text))]
    found = coerce_ndjson("".join(f'{{"v":{text}}}\n' for text in texts).encode(), REAL, RULES)
    assert list(map(repr, found.batch.column("v").to_pylist())) == [repr(float(text)) for text in texts]


@given(st.lists(st.floats(1e-300, 1e300), min_size=1, max_size=20), st.sampled_from([-1, 0, 1]))
@settings(max_examples=150, deadline=None)
def test_doubles_halfway_between_two_are_rounded_as_python_does(values: list[float], step: int) -> None:
    texts = []
    with localcontext(prec=1200):
        for value in values:
            half = (Decimal(value) + Decimal(math.nextafter(value, math.inf))) / 2
            digits = Decimal((0, (1,), -1100)) * step
            texts.append(f"{half + digits:f}" if value >= 1 else f"{half + digits:e}")
    texts = [text if "." in text else text + ".0" for text in texts]
    found = coerce_ndjson("".join(f'{{"v":{text}}}\n' for text in texts).encode(), REAL, RULES)
    assert found.batch.column("v").to_pylist() == [float(text) for text in texts]


@given(st.lists(INTEGERS, min_size=1, max_size=20))
@example([9_218_868_437_227_405_312, 2**63 - 1, 2**63 - 1024, -(2**63), 2**64 - 1, 2**64 - 2048, 2**70, 10**30])
@settings(max_examples=150, deadline=None)
def test_integers_in_a_real_column_are_kept_there_only_if_a_double_is_equal(values: list[int]) -> None:
    coerced = coerce_ndjson(lines(values), REAL, RULES)
    exact = [abs(value) < 2**1023 and Fraction(float(value)) == value for value in values]
    assert coerced.batch.column("v").is_valid().to_pylist() == exact
    assert [row["v"] for row in merged(coerced)] == values
    assert coerced.overflowed == exact.count(False)


@given(st.lists(TEXTS, min_size=1, max_size=10), st.booleans())
@settings(max_examples=200, deadline=None)
def test_texts_come_back_whole_however_they_are_escaped(texts: list[str], ascii: bool) -> None:
    found = coerce_ndjson(lines(texts, ascii=ascii), TEXT, RULES)
    assert found.batch.column("v").to_pylist() == texts
    escaped = "".join(f'{{"v":"{"".join(_escaped(letter) for letter in text)}"}}\n' for text in texts).encode()
    assert coerce_ndjson(escaped, TEXT, RULES).batch == found.batch


def test_blank_lines_line_ends_and_a_byte_order_mark_are_taken_as_they_come() -> None:
    text = b'\xef\xbb\xbf{"v":1.5}\r\n\r\n \t\n{ "v" : 2.5 } \r\n\n\t{"v":3.5\r}'
    assert coerce_ndjson(text, REAL, RULES).batch.column("v").to_pylist() == [1.5, 2.5, 3.5]
    assert coerce_ndjson(memoryview(text), REAL, RULES).batch.num_rows == 3
    assert coerce_ndjson(pa.py_buffer(bytearray(text)), REAL, RULES).batch.num_rows == 3
    for empty in (b"", b"\n", b" \r\n\n", b"\xef\xbb\xbf"):
        assert coerce_ndjson(empty, REAL, RULES).batch == pa.RecordBatch.from_pylist([], schema=REAL.arrow)


@pytest.mark.parametrize(
    ("line", "column", "reason"),
    [
        ("1", 1, "a line must be an object"),
        ("[1]", 1, "a line must be an object"),
        ("null", 1, "a line must be an object"),
        ('{"v":1', 7, "the line ends too early"),
        ('{"v":1,}', 8, "expected a key in double quotes"),
        ("{v:1}", 2, "expected a key in double quotes"),
        ("{'v':1}", 2, "expected a key in double quotes"),
        ('{"v" 1}', 6, "expected a colon"),
        ('{"v":1 "w":2}', 8, "expected a comma or the end of the map or list"),
        ('{"v":[1 2]}', 9, "expected a comma or the end of the map or list"),
        ('{"v":[1,]}', 9, "expected a value"),
        ('{"v":{"a":1]}', 12, "expected a comma or the end of the map or list"),
        ('{"v":Nan}', 6, "expected a value"),
        ('{"v":Infinite}', 6, "expected a value"),
        ('{"v":-NaN}', 7, "not a number"),
        ('{"v":[nan]}', 7, "expected a value"),
        ('{"v":tru}', 6, "expected a value"),
        ('{"v":nul', 6, "expected a value"),
        ('{"v":01}', 6, "not a number"),
        ('{"v":1.}', 8, "not a number"),
        ('{"v":.5}', 6, "expected a value"),
        ('{"v":+5}', 6, "expected a value"),
        ('{"v":1e}', 8, "not a number"),
        ('{"v":-}', 7, "not a number"),
        ('{"v":' + "9" * 4301 + "}", 6, "number too large"),
        ('{"v":"\\x"}', 7, "not an escape"),
        ('{"v":"\\u12"}', 7, "not an escape"),
        ('{"v":"\\ud800"}', 7, "half of a surrogate pair"),
        ('{"v":"a\\udc00"}', 8, "half of a surrogate pair"),
        ('{"v":"\\ud800\\u0041"}', 7, "half of a surrogate pair"),
        ('{"v":"\\ud800\\u00"}', 7, "not an escape"),
        ('{"v":"a\tb"}', 8, "control character in a string"),
        ('{"v":"abc', 10, "the line ends too early"),
        ('{"v":"abc\\', 10, "not an escape"),
        ('{"v":1}x', 8, "text after the object"),
        ('{"v":1}{"v":2}', 8, "text after the object"),
        ('{"é€😀":1 2}', 10, "expected a comma or the end of the map or list"),
    ],
)
def test_a_bad_line_is_named_with_its_line_and_column(line: str, column: int, reason: str) -> None:
    text = f'{{"v":1}}\r\n\n{{"v":2}}\n{line}\n{{"v":3}}\n'
    with pytest.raises(InvalidInputError) as caught:
        coerce_ndjson(text.encode(), REAL, RULES, first_line=100)
    assert caught.value.message == f"bad JSON: {reason}"
    assert (caught.value.kind, caught.value.facts["line"], caught.value.facts["column"]) == ("bad_json", 103, column)
    assert len(str(caught.value)) < 200
    with pytest.raises(InvalidInputError, match="line=1 "):
        coerce_ndjson(line.encode(), REAL, RULES)


@pytest.mark.parametrize(
    "bad",
    [
        b"\x80",
        b"\xc0\xaf",
        b"\xc1\x81",
        b"\xe0\x80\x80",
        b"\xed\xa0\x80",
        b"\xf0\x80\x80\x80",
        b"\xf4\x90\x80\x80",
        b"\xf5",
        b"\xc3",
        b"\xe2\x82",
        b"\xf0\x9f\x98",
        b"\xff",
    ],
)
def test_bytes_that_are_not_utf8_are_named_with_their_line(bad: bytes) -> None:
    for text in (b'{"v":"ab%s"}', b'{"v%s":1}', b'{"v":["%s"]}', b'{"v":{"%s":1}}', b'{"v":"ab%s'):
        with pytest.raises(InvalidInputError) as caught:
            coerce_ndjson(b'{"v":"\xc3\xa9"}\n' + text % bad, ANY, RULES)
        assert (caught.value.kind, caught.value.facts["line"]) == ("bad_utf8", 2)


def test_every_part_of_a_line_is_an_error() -> None:
    line = LINE.encode()
    assert merged(coerce_ndjson(line, ANY, RULES)) == [
        {name: value for name, value in json.loads(line).items() if value is not None}
    ]
    for end in range(1, len(line)):
        with pytest.raises(InvalidInputError):
            coerce_ndjson(line[:end], ANY, RULES)


@pytest.mark.parametrize("text", HOSTILE)
def test_a_key_is_recognised_only_as_it_is_written(text: bytes) -> None:
    compare_with_orjson(text)


@given(st.data())
@settings(max_examples=600, deadline=None)
def test_mutated_text_gives_what_orjson_gives_or_an_error(data: st.DataObject) -> None:
    text = bytearray((LINE + '\n{"v":[1e5,-0.5],"w":{"k":"v"}}\n').encode())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text)))
        size = data.draw(st.integers(0, 3))
        text[at : at + size] = data.draw(
            st.binary(max_size=3)
            | st.sampled_from(list(b'"\\{}[]:,.-+eE0u\n\r\t\xc3\xa9 n')).map(lambda byte: bytes([byte]))
        )
    compare_with_orjson(bytes(text))


@pytest.mark.torture  # all loops are compiled apart for it
def test_no_loop_reads_beyond_its_arrays(tmp_path: Path) -> None:
    """Run hostile texts with numba's own bounds checks, compiled apart; a read out of bounds is an IndexError."""
    environment = os.environ | {"NUMBA_BOUNDSCHECK": "1", "NUMBA_OPT": "0", "NUMBA_CACHE_DIR": str(tmp_path)}
    script = "from tests.ingest.test_shred import run_hostile_texts; run_hostile_texts()"
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "checked\n"), done.stderr


def test_nesting_is_taken_up_to_the_limit_and_refused_beyond() -> None:
    for shape in ("[%s]", '{"b":%s,"a":1}', '{"a":[%s]}'):
        for levels in (63, 64, 65, 66, MAX_DEPTH - 1):
            text = "[]"
            for _ in range((levels - 1) // (shape.count("[") + shape.count("{"))):
                text = shape % text
            line = f'{{"v":{text},"w":{text}}}'
            [found] = merged(coerce_ndjson(line.encode(), ANY, RULES))
            assert found == json.loads(line)
    for text in ("[" * MAX_DEPTH + "]" * MAX_DEPTH, "[" * 100_000, '{"a":' * 1000 + "1" + "}" * 1000):
        with pytest.raises(InvalidInputError) as caught:
            coerce_ndjson(f'{{"v":1}}\n{{"v":{text}}}'.encode(), ANY, RULES)
        assert (caught.value.kind, caught.value.facts["line"]) == ("too_deep", 2)


@pytest.mark.parametrize("size", [1 << 12, 1 << 20, 3 << 20])
def test_one_very_large_value_is_kept_whole(size: int) -> None:
    long, wide, key = "x" * size, list(range(size // 8)), "k" * size
    text = json.dumps({"v": {"b": long, "a": wide}, "w": long, key: 1}).encode()
    coerced = coerce_ndjson(b'{"v":1}\n' + text, ANY, RULES)
    assert merged(coerced) == [{"v": 1}, {"v": {"b": long, "a": wide}, "w": long, key: 1}]
    assert coerced.schema.names == ("v", "w", OVERFLOW_COLUMN)


def test_thousands_of_keys_land_in_the_overflow_column() -> None:
    rows = [{f"key-{at * 31 % 10_000}-{at}": at for at in range(start, start + 100)} for start in range(0, 20_000, 100)]
    text = "\n".join(map(json.dumps, rows)).encode()
    coerced = coerce_ndjson(text, ANY, RULES)
    assert merged(coerced) == rows
    assert len(coerced.schema) == 1 + RULES.max_new_columns + 1
    assert coerced.overflowed == 20_000 - RULES.max_new_columns


def run_hostile_texts() -> None:
    """Shred texts cut off and changed at every place."""
    line = LINE.encode()
    for end in range(len(line) + 1):
        compare_with_orjson(line[:end])
        compare_with_orjson(b'{"k\\n":1,"z":2}\n' + line[:end])
        compare_with_orjson(line[:end] + b"\xf0" + line[end + 1 :])
        compare_with_orjson(line[:end] + b"\\" + line[end + 1 :])
        compare_with_orjson(line[:end] + b"\n" + line[end:])
    for text in HOSTILE:
        compare_with_orjson(text)
    for keys in (5, 200, 5000):
        compare_with_orjson(
            json.dumps({f"k{at * 7 % keys}{at}": {f"{at % 9}": [0.1] * at} for at in range(keys % 701)}).encode()
        )
        compare_with_orjson("\n".join(json.dumps({f"k{at}": "x" * at}) for at in range(keys % 701)).encode())
    vectors = Schema.of({"e": "vector(3)", "t": "timestamp", "i": "int", "r": "real", "b": "bool", "s": "string"})
    text = b'{"e":[1,2.5,-3e0],"t":"2026-01-01T00:00:00Z","i":1,"r":1,"b":true,"s":"x"}\n{"e":[ 1 , 2,3 ],"t":1.5e9}\n'
    assert coerce_ndjson(text, vectors, RULES).batch.num_rows == 2
    print("checked")


def compare_with_orjson(text: bytes) -> None:
    """Check that we take exactly what orjson takes, line by line, and give what Python's json reads."""
    expected = read_with_orjson(text)
    try:
        found: Any = merged(coerce_ndjson(text, ANY, RULES))
    except InvalidInputError as error:
        found = error.kind
    assert found == expected or (expected is None and found in ("bad_json", "bad_utf8")), (text, found, expected)


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


def read_with_orjson(text: bytes) -> list[dict[str, Any]] | None:
    """Return the rows of a text, or None if some line is not an object."""
    rows = []
    for line in text.removeprefix(b"\xef\xbb\xbf").split(b"\n"):
        if not line.strip(b" \t\r"):
            continue
        try:
            if not isinstance(orjson.loads(line), dict):
                return None
        except orjson.JSONDecodeError as error:
            if "infinity" not in str(error) or not _is_object(line):  # what no double holds is infinite here
                return None
        rows.append({key: value for key, value in json.loads(line).items() if value is not None})
    return rows


def _escaped(letter: str) -> str:
    units = letter.encode("utf-16-be")
    return "".join(f"\\u{units[at]:02X}{units[at + 1]:02x}" for at in range(0, len(units), 2))
