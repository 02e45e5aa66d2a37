"""Divide decimals in process and compare with Python's exact arithmetic.

The answers themselves, on both engines, are in the cases of SQL. It does not run Spark.
"""

from __future__ import annotations

import random
from decimal import ROUND_HALF_UP, Decimal, localcontext

import pytest

from tidelake import Lake
from tidelake.query.decimals import Digits, divided

# What is divided in 64 bits, with any value, and what needs more, with values for which 127 bits are enough.
FEW = [
    ((10, 2), (10, 2)),
    ((10, 2), (4, 0)),
    ((18, 2), (12, 2)),
    ((5, 5), (3, 0)),
    ((9, 0), (15, 3)),
    ((12, 2), (12, 6)),
    ((16, 0), (10, 2)),
    ((17, 9), (9, 9)),
]
MANY = [((20, 4), (10, 2)), ((18, 2), (18, 2)), ((38, 10), (10, 2)), ((12, 0), (16, 8)), ((18, 4), (17, 2))]
ENOUGH = 9


def drawn(chance: random.Random, digits: Digits, most: int) -> Decimal:
    precision, scale = min(digits[0], most), digits[1]
    units = chance.choice([chance.randrange(10**precision), chance.randrange(1, 9), 10**precision - 1, 5, 2])
    return Decimal(units * chance.choice([1, -1])).scaleb(-scale)


def quotient(one: Decimal, other: Decimal, digits: Digits) -> Decimal | None:
    with localcontext() as context:
        context.prec = 200
        found = (one / other).quantize(Decimal(1).scaleb(-digits[1]), ROUND_HALF_UP) if other else None
        return found if found is not None and abs(found) < Decimal(10) ** (digits[0] - digits[1]) else None


@pytest.mark.parametrize(
    ("one", "other", "most"), [*((*pair, 38) for pair in FEW), *((*pair, ENOUGH) for pair in MANY)]
)
def test_quotients_are_exact(world: Lake, one: Digits, other: Digits, most: int) -> None:
    chance = random.Random(str((one, other)))
    pairs = [(drawn(chance, one, most), drawn(chance, other, most)) for _ in range(150)]
    pairs += [(Decimal(1).scaleb(-one[1]), Decimal(0)), (Decimal(0).scaleb(-one[1]), Decimal(1).scaleb(-other[1]))]
    rows = ", ".join(f"({at}, '{a:f}', '{b:f}')" for at, (a, b) in enumerate(pairs))
    sides = f"cast(a as decimal{one}) as a, cast(b as decimal{other}) as b"
    source = f"(select n, {sides} from values {rows} t(n, a, b))"
    found = world.sql(f"select a / b as q, a div b as w from {source} order by n", engine="local").to_arrow()
    digits = divided(one, other)
    assert str(found.schema.field("q").type) == f"decimal128({digits[0]}, {digits[1]})"
    assert found["q"].to_pylist() == [quotient(a, b, digits) for a, b in pairs]
    with localcontext() as context:
        context.prec = 200
        assert found["w"].to_pylist() == [int(a / b) if b else None for a, b in pairs]


def test_a_quotient_of_quotients_is_exact(world: Lake) -> None:
    text = "select (a / b) / (b / a) as q from values (cast(7 as decimal(6,2)), cast(3 as decimal(6,2)), 1) t(a, b, n)"
    third = quotient(Decimal(7), Decimal(3), divided((6, 2), (6, 2)))
    other = quotient(Decimal(3), Decimal(7), divided((6, 2), (6, 2)))
    assert third is not None
    assert other is not None
    digits = divided(divided((6, 2), (6, 2)), divided((6, 2), (6, 2)))
    assert world.sql(text, engine="local").to_arrow()["q"].to_pylist() == [quotient(third, other, digits)]
