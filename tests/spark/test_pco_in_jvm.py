"""Decode in the JVM what pcodec writes: every mode, every kind of differences, any length; damage is an error in words.

Numbers go to the JVM as one file of many cases, since each call of its bridge takes longer than a page.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from pcodec import ChunkConfig, DeltaSpec, ModeSpec, PagingSpec, standalone
from pyspark.sql import SparkSession

from tidelake.format.codecs import PCO_LEVEL
from tidelake.spark.jvm.compile import java_class

Numbers = npt.NDArray[Any]

TYPES: dict[int, np.dtype[Any]] = {
    0: np.dtype(np.float64),
    2: np.dtype(np.uint16),
    4: np.dtype(np.uint32),
    8: np.dtype(np.uint64),
}
CLASSIC, INT_MULT, FLOAT_MULT, FLOAT_QUANT, DICT = range(5)
APART, CONSECUTIVE, LOOKBACK, CONVOLVED = range(4)
DELTAS = (
    DeltaSpec.auto(), DeltaSpec.no_op(), DeltaSpec.try_lookback(), *map(DeltaSpec.try_consecutive, (1, 2, 7)),
    *map(DeltaSpec.try_conv1, (1, 6, 32)),
)  # fmt: skip
INT_MODES = (ModeSpec.auto(), ModeSpec.classic(), ModeSpec.try_int_mult(1000), ModeSpec.try_dict())
REAL_MODES = (
    ModeSpec.auto(), ModeSpec.classic(), ModeSpec.try_float_mult(0.01), ModeSpec.try_float_quant(29),
    ModeSpec.try_float_quant(1), ModeSpec.try_float_quant(52), ModeSpec.try_dict(),
)  # fmt: skip

# A file is cases: four numbers of 32 bits (width, count, length, 0), the numbers, and the bytes up to a multiple of 8.
CASES = """
package tidelake;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.Arrays;
import java.util.Random;

public class PcoCases {
  byte[] all;
  ByteBuffer ints;
  int at = 0;
  int width;
  long[] wanted;
  int from;
  int to;

  public PcoCases(String path) throws Exception {
    all = Files.readAllBytes(Paths.get(path, new String[0]));
    ints = ByteBuffer.wrap(all).order(ByteOrder.LITTLE_ENDIAN);
  }

  boolean next() {
    if (at == all.length) {
      return false;
    }
    width = ints.getInt(at);
    wanted = new long[ints.getInt(at + 4)];
    int length = ints.getInt(at + 8);
    for (int i = 0; i < wanted.length; i++) {
      wanted[i] = ints.getLong(at + 16 + 8 * i);
    }
    from = at + 16 + 8 * wanted.length;
    to = from + length;
    at = from + (length + 7) / 8 * 8;
    return true;
  }

  /** What is decoded of bytes; null if they were refused as they should be. */
  static long[] decoded(byte[] data, int from, int to, int width, int count) {
    long[] found = new long[count];
    try {
      Pco.read(data, from, to, width, found, count);
    } catch (IllegalArgumentException error) {
      return null;
    }
    return found;
  }

  /** The cases whose numbers are others; each is decoded amid other bytes, and alone. */
  public String others() {
    String others = "";
    for (int n = 0; next(); n++) {
      byte[] alone = Arrays.copyOfRange(all, from, to);
      boolean isRight = Arrays.equals(wanted, decoded(all, from, to, width, wanted.length))
          && Arrays.equals(wanted, decoded(alone, 0, alone.length, width, wanted.length));
      others += isRight ? "" : " " + n;
    }
    return others;
  }

  /** The cases of which something was not refused: other counts, other types, fewer or more bytes. */
  public String taken() {
    String taken = "";
    for (int n = 0; next(); n++) {
      int count = wanted.length;
      byte[] longer = Arrays.copyOfRange(all, from, to + 1);
      longer[to - from] = 0;
      boolean isTaken = decoded(longer, 0, longer.length, width, count) != null
          || decoded(all, from, to, width, count + 1) != null
          || count > 0 && decoded(all, from, to, width, count - 1) != null
          || decoded(all, from, to, 1, count) != null
          || count > 0 && decoded(all, from, to, width == 8 ? 4 : 8, count) != null;
      int step = Math.max((to - from) / 200, 1);
      for (int end = from; end < to; end += step) {
        isTaken |= decoded(all, from, end, width, count) != null;
        byte[] alone = Arrays.copyOfRange(all, from, end);
        isTaken |= decoded(alone, 0, alone.length, width, count) != null;
      }
      taken += isTaken ? " " + n : "";
    }
    return taken;
  }

  /** What is said of the first case. */
  public String said() {
    next();
    try {
      Pco.read(all, from, to, width, new long[wanted.length], wanted.length);
    } catch (IllegalArgumentException error) {
      return error.getMessage();
    }
    return "nothing";
  }

  /** How many damaged files were refused; another error than the one for that comes through. */
  public int refused(int rounds) {
    Random chance = new Random(1);
    int refused = 0;
    while (next()) {
      for (int i = 0; i < rounds; i++) {
        byte[] bad = Arrays.copyOfRange(all, from, to);
        for (int flips = 1 + chance.nextInt(3); flips > 0; flips--) {
          // Half of them where sizes and bins are.
          int place = chance.nextInt(8 * Math.min(bad.length, chance.nextBoolean() ? 80 : bad.length));
          bad[place / 8] ^= (byte) (1 << place % 8);
        }
        refused += decoded(bad, 0, bad.length, width, wanted.length) == null ? 1 : 0;
      }
    }
    return refused;
  }
}
"""

Case = tuple[int, Numbers, bytes]


@pytest.fixture(scope="module")
def read_cases(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Callable[[list[Case]], Any]:
    """Give what has the JVM decode cases."""
    jvm: Any = spark.sparkContext._jvm
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(java_class(spark, "tidelake.Pco").getClassLoader())
    compiler.cook(CASES)
    made = compiler.getClassLoader().loadClass("tidelake.PcoCases").getConstructors()[0]
    folder = tmp_path_factory.mktemp("pco")

    def read(cases: list[Case]) -> Any:
        path = folder / "cases"
        write_cases(path, cases)
        arguments = spark.sparkContext._gateway.new_array(jvm.Object, 1)  # type: ignore[union-attr]
        arguments[0] = str(path)
        return made.newInstance(arguments)

    return read


def write_cases(path: Path, cases: list[Case]) -> None:
    with path.open("wb") as file:
        for width, values, page in cases:
            wanted = values.view(np.uint64) if width == 0 else values.astype(np.uint64)
            file.write(struct.pack("<4i", width, len(values), len(page), 0) + wanted.tobytes())
            file.write(page + bytes(-len(page) % 8))


def integers(count: int, width: int, seed: int) -> Iterator[Numbers]:
    """Make numbers of many kinds, as far as they fit into so many bytes."""
    chance, at = np.random.default_rng(seed), np.arange(count)
    rare = chance.random(count) < 0.01
    large = chance.integers(0, 2**63, count, dtype=np.uint64) * 2 + chance.integers(0, 2, count, dtype=np.uint64)
    found: list[Numbers] = [
        np.full(count, 7),
        np.cumsum(chance.integers(0, 1000, count)),
        large,
        large % 100,
        np.minimum(chance.pareto(1.0, count) * 100, 1e18),
        1_700_000_000_000_000 + np.cumsum(np.where(rare, large % 10**9, 10**6)),
        at * at * 3 + at * 17,
        large % 10**5 * 1000 + np.where(rare, large % 777, 0),
        np.resize(large[:53], count),
        np.resize(large[:777], count) ^ np.where(rare, large % 2**20, 0),
        np.sin(at / 30) * 20_000 + 30_000 + chance.normal(0, 3, count),
        chance.choice(large[:20], count) if count else large,
        chance.choice(np.array([0, 2**64 - 1, 2**63, 1, 2**32 - 1, 2**16 - 1], np.uint64), count),
    ]
    return (each.astype(np.uint64).astype(TYPES[width]) for each in found)


def reals(count: int, seed: int) -> Iterator[Numbers]:
    chance, at = np.random.default_rng(seed), np.arange(count)
    some, bits = chance.normal(0, 1, count), chance.integers(0, 2**64, count, dtype=np.uint64)
    cents = chance.integers(-(10**5), 10**5, count) / 100
    is_odd = chance.random(count) < 0.1
    odd = chance.choice([np.nan, -np.nan, np.inf, -np.inf, -0.0, 0.0, 5e-324, 1.7e308], count)
    found: list[Numbers] = [
        np.full(count, 7.5), cents, some, np.cumsum(some), some.astype(np.float32), np.sin(at / 30),
        chance.integers(-(10**5), 10**5, count) * np.pi / 7, np.rint(some * 1000), np.rint(some * 1000) * 1e300,
        np.where(is_odd, odd, cents), np.where(is_odd, odd, some.astype(np.float32)), bits.view(np.float64),
        np.where(is_odd, bits, cents.view(np.uint64)).view(np.float64), np.resize(some[:101], count), odd,
    ]  # fmt: skip
    return (np.ascontiguousarray(each, np.float64) for each in found)


def cases(counts: tuple[int, ...], seed: int = 1, **options: Any) -> Iterator[Case]:
    """Compress numbers of all kinds in all ways, and give those that pcodec can."""
    for count in counts:
        for width in TYPES:
            for values in reals(count, seed) if width == 0 else integers(count, width, seed):
                for mode in INT_MODES if width else REAL_MODES:
                    for delta in DELTAS:
                        page = compressed(values, mode_spec=mode, delta_spec=delta, **options)
                        if page is not None:
                            yield width, values, page


def compressed(values: Numbers, **options: Any) -> bytes | None:
    try:
        return bytes(standalone.simple_compress(values, ChunkConfig(**{"compression_level": PCO_LEVEL, **options})))
    except BaseException as error:
        if type(error).__name__ not in ("RuntimeError", "TypeError", "ValueError", "PanicException"):
            raise
        return None  # no such mode or differences of these numbers


def kind(case: Case) -> tuple[int, int, int]:
    """Return the width of a case's numbers, and the mode and the differences of its first chunk."""
    width, values, page = case
    bits = int.from_bytes(page, "little")
    at = 8 * (6 + (6 + 1 + (page[6] & 63) + 7) // 8 + 2 + 4)
    mode, size, at = bits >> at & 15, 8 * values.dtype.itemsize, at + 4
    words = bits >> at & 2**25 - 1
    at += {CLASSIC: 0, FLOAT_QUANT: 8, DICT: 28 + words * size}.get(mode, size)  # a dictionary begins with a byte
    return width, mode, bits >> at & 15


def test_numbers_are_those_that_were_written(read_cases: Callable[[list[Case]], Any]) -> None:
    made = list(cases((0, 1, 2, 33, 255, 256, 257, 2000)))
    assert read_cases(made).others() == ""
    kinds = {kind(each) for each in made if len(each[1])}
    modes = {(width, mode) for width in (2, 4, 8) for mode in (CLASSIC, INT_MULT, DICT)}
    modes |= {(0, mode) for mode in (CLASSIC, FLOAT_MULT, FLOAT_QUANT, DICT)}
    wanted = {(*each, delta) for each in modes for delta in (APART, CONSECUTIVE, LOOKBACK)}
    wanted |= {(width, mode, CONVOLVED) for width in (2, 4) for mode in (CLASSIC, INT_MULT, DICT)}
    assert kinds >= wanted


def test_numbers_of_many_chunks_and_of_whole_pages_are_those_that_were_written(
    read_cases: Callable[[list[Case]], Any],
) -> None:
    pagings = (PagingSpec.equal_pages_up_to(700), PagingSpec.exact_page_sizes([1, 999, 256, 744]))
    made = [case for paging in pagings for case in cases((2000,), 2, paging_spec=paging)]
    for count, level in ((65_536, PCO_LEVEL), (65_536, 12), (300_000, PCO_LEVEL)):
        for width in TYPES:
            kinds = reals(count, 3) if width == 0 else integers(count, width, 3)
            made += [(width, values, compressed(values, compression_level=level) or b"") for values in kinds]
    assert read_cases(made).others() == ""


def test_files_of_other_numbers_or_other_bytes_are_refused(read_cases: Callable[[list[Case]], Any]) -> None:
    made = list(cases((0, 1, 300)))
    assert read_cases(made[:: len(made) // 500]).taken() == ""


def test_damaged_files_are_refused_or_decoded_as_something(read_cases: Callable[[list[Case]], Any]) -> None:
    made = list(cases((1, 300, 2000)))[::7]
    assert len(made) * 20 > read_cases(made).refused(20) > len(made)


def packed(*fields: tuple[int, int]) -> bytes:
    """Pack values in so many bits each, the first in the lowest."""
    bits = at = 0
    for value, width in fields:
        bits, at = bits | value << at, at + width
    return bits.to_bytes((at + 7) // 8, "little")


HEADER = (int.from_bytes(b"pco!", "little"), 32), (3, 8), (0, 8), (0, 6), (0, 2), (4, 8), (1, 8)
TEN = (2, 8), (9, 24)  # a chunk of ten numbers of 64 bits
SEVEN = (0, 4), (1, 15), (7, 64), (0, 7)  # a bin, of 7 alone
BACK = (2, 4), (3, 5), (0, 5)  # differences from one of the 16 numbers before


def test_a_file_that_is_packed_by_hand_is_decoded(read_cases: Callable[[list[Case]], Any]) -> None:
    page = packed(*HEADER, *TEN, (0, 8), *SEVEN, (0, 5)) + b"\0"
    assert read_cases([(8, np.full(10, 7, np.uint64), page)]).others() == ""


@pytest.mark.parametrize(
    ("chunk", "said"),
    [
        ((*TEN[:1], (2**24 - 1, 24), (0, 8), *SEVEN), "a chunk of 16777216 numbers"),
        (((1, 8), *TEN[1:], (0, 8), (0, 4), (1, 15), (7, 32), (0, 6)), "numbers of type 1"),
        ((*TEN, (5, 4), (0, 4), *SEVEN), "mode 5"),
        ((*TEN, (1, 4), (0, 64), (0, 4), *SEVEN, *SEVEN), "multiples of 0"),
        ((*TEN, (2, 4), (5, 64), (0, 4), *SEVEN, *SEVEN), "multiples of what is no number"),
        ((*TEN, (3, 4), (9, 8), (0, 4), *SEVEN, *SEVEN), "quanta of 9 bits"),
        ((*TEN, (4, 4), (2**25 - 1, 25), (0, 3), (7, 64)), "a dictionary that ends past the file"),
        ((*TEN, (4, 4), (1, 25), (0, 3), (7, 64), (0, 4), (0, 4), (1, 15), (1, 32), (0, 6)), "word 1 of a dictionary"),
        ((*TEN, (0, 4), (4, 4), *SEVEN), "differences of kind 4"),
        ((*TEN, (0, 4), (1, 4), (0, 4), *SEVEN), "differences of no order"),
        ((*TEN, (0, 4), (2, 4), (31, 5), (0, 5), *SEVEN), "a window of 2[*][*]32 numbers"),
        ((*TEN, (0, 4), (2, 4), (3, 5), (9, 4), (0, 1), *SEVEN), "a window of 2[*][*]4 numbers, 2[*][*]9 of them"),
        ((*TEN, (0, 4), *BACK, (0, 4), (1, 15), (0, 32), (0, 6), *SEVEN, (0, 71)), "a number 0 before another"),
        ((*TEN, (0, 4), *BACK, (0, 4), (1, 15), (2, 32), (0, 6), *SEVEN, (0, 71)), "a number 2 before another"),
        ((*TEN, (0, 4), *BACK, (0, 4), (1, 15), (17, 32), (0, 6), *SEVEN, (0, 71)), "a number 17 before another"),
        ((*TEN, (0, 4), (3, 4), (0, 5), (2**63, 64), (0, 5), (2**31, 32), *SEVEN), "weights beyond the width"),
        ((*TEN, (0, 8), (0, 4), (0, 15)), "numbers without bins"),
        ((*TEN, (0, 8), (0, 4), (2, 15), (7, 64), (0, 7), (8, 64), (0, 7)), "2 bins in 2[*][*]0 states"),
        ((*TEN, (0, 8), (1, 4), (1, 15), (1, 1), (7, 64), (0, 7)), "1 bins in 2[*][*]1 states"),
        ((*TEN, (0, 8), (15, 4), (2, 15)), "2 bins in 2[*][*]15 states"),
        ((*TEN, (0, 8), (14, 4), (2**14 + 1, 15)), "16385 bins in 2[*][*]14 states"),
        ((*TEN, (0, 8), (14, 4), (2**14, 15)), "a file that ends early"),
        ((*TEN, (0, 8), (1, 4), (2, 15), (0, 1), (7, 64), (0, 7), (1, 1), (8, 64), (0, 7)), "bins of 3 states"),
        ((*TEN, (0, 8), (0, 4), (1, 15), (7, 64), (65, 7)), "a bin of 2[*][*]65 numbers"),
        ((*TEN, (0, 8), *SEVEN, (1, 6)), "bits where there are none"),
        ((*TEN, (0, 8), *SEVEN, (0, 6), (0, 8), (0, 8)), "or bytes behind them"),
        ((*TEN, (0, 8), (0, 4), (1, 15), (7, 64), (64, 7), (0, 6)), "numbers that end past the file"),
    ],
)
def test_a_hostile_chunk_is_refused(
    read_cases: Callable[[list[Case]], Any], chunk: tuple[tuple[int, int], ...], said: str
) -> None:
    assert re.search(said, read_cases([(8, np.full(10, 7, np.uint64), packed(*HEADER, *chunk) + bytes(16))]).said())


@pytest.mark.parametrize("given_log", [0, 1, 3, 8, 9])
@pytest.mark.parametrize("count", [2, 255, 257, 300, 513, 1000, 1025])
def test_differences_from_numbers_before_of_which_many_are_given_are_decoded(
    read_cases: Callable[[list[Case]], Any], count: int, given_log: int
) -> None:
    """No writer gives more than one number before the first difference, but a file may."""
    given = np.random.default_rng(count).integers(0, 2**64, 1 << given_log, dtype=np.uint64)
    values = np.resize(given, max(count, len(given)))
    values[len(given) :] += (5 * (np.arange(len(given), len(values)) // len(given))).astype(np.uint64)
    bins = (0, 4), (1, 15), (len(given), 32), (0, 6), (0, 4), (1, 15), (2**63 + 5, 64), (0, 7)
    back = (2, 4), (given_log, 5), (given_log, 4), (0, 1)  # from one of twice as many numbers before
    start = (0, 3), *((int(each), 64) for each in given)
    page = packed(*HEADER, (2, 8), (count - 1, 24), (0, 4), *back, *bins, *start) + b"\0"
    assert np.array_equal(np.asarray(standalone.simple_decompress(page)), values[:count])
    assert read_cases([(8, values[:count], page)]).others() == ""
