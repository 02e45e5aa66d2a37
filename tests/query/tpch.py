"""Make tables in the shape of TPC-H, small and the same every time, with values that its 22 queries find.

Money and quantities are reals and dates are timestamps, because those are the types that a lake has. It is not the
benchmark's own generator: answers are compared between engines on the same rows, not with published ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

REGIONS = ("AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST")
NATIONS = (
    ("ALGERIA", 0), ("ARGENTINA", 1), ("BRAZIL", 1), ("CANADA", 1), ("EGYPT", 4), ("ETHIOPIA", 0), ("FRANCE", 3),
    ("GERMANY", 3), ("INDIA", 2), ("INDONESIA", 2), ("IRAN", 4), ("IRAQ", 4), ("JAPAN", 2), ("JORDAN", 4),
    ("KENYA", 0), ("MOROCCO", 0), ("MOZAMBIQUE", 0), ("PERU", 1), ("CHINA", 2), ("ROMANIA", 3), ("SAUDI ARABIA", 4),
    ("VIETNAM", 2), ("RUSSIA", 3), ("UNITED KINGDOM", 3), ("UNITED STATES", 1),
)  # fmt: skip
COLORS = ("green", "forest", "blue", "red", "ivory", "lace", "navy")
TYPES = ("PROMO", "ECONOMY", "STANDARD", "MEDIUM"), ("POLISHED", "BURNISHED", "PLATED"), ("BRASS", "STEEL", "TIN")
CONTAINERS = ("SM", "MED", "LG"), ("CASE", "BOX", "PACK", "PKG", "BAG")
FIRST_DAY, DAYS = np.datetime64("1992-01-01"), 2400

SUPPLIERS, CUSTOMERS, PARTS, ORDERS = 50, 150, 200, 1500


def tables() -> Mapping[str, pa.Table]:
    """Give the eight tables by name."""
    rng = np.random.default_rng(22)
    part, orders = _part(rng), _orders(rng)
    return {
        "region": pa.table({"r_regionkey": pa.array(range(5), pa.int32()), "r_name": list(REGIONS)}),
        "nation": pa.table(
            {
                "n_nationkey": pa.array(range(25), pa.int32()),
                "n_name": [name for name, _ in NATIONS],
                "n_regionkey": pa.array([region for _, region in NATIONS], pa.int32()),
            }
        ),
        "supplier": _people(rng, "s", "supp", SUPPLIERS),
        "customer": _people(rng, "c", "cust", CUSTOMERS),
        "part": part,
        "partsupp": _partsupp(rng),
        "orders": orders,
        "lineitem": _lineitem(rng, orders),
    }


def _pick(rng: np.random.Generator, values: Any, count: int) -> list[str]:
    return [values[at] for at in rng.integers(0, len(values), count)]


def _money(rng: np.random.Generator, low: float, high: float, count: int) -> np.ndarray[Any, Any]:
    return np.round(rng.uniform(low, high, count), 2)


def _days(days: np.ndarray[Any, Any]) -> pa.Array:
    return pa.array((FIRST_DAY + days).astype("datetime64[us]")).cast(pa.timestamp("us", tz="UTC"))


def _people(rng: np.random.Generator, mark: str, word: str, count: int) -> pa.Table:
    nations = rng.integers(0, 25, count)
    columns = {
        f"{mark}_{word}key": pa.array(range(1, count + 1), pa.int64()),
        f"{mark}_name": [f"{word}#{number:09}" for number in range(1, count + 1)],
        f"{mark}_address": [f"street {number}" for number in rng.integers(0, 10**6, count)],
        f"{mark}_nationkey": pa.array(nations, pa.int32()),
        f"{mark}_phone": [f"{nation + 10}-{number}" for nation, number in zip(nations, range(count), strict=True)],
        f"{mark}_acctbal": _money(rng, -999, 9999, count),
        f"{mark}_comment": _pick(rng, ("fine", "Customer slow Complaints", "quick", "even"), count),
    }
    if mark == "c":
        columns["c_mktsegment"] = _pick(rng, ("BUILDING", "AUTOMOBILE", "MACHINERY"), count)
    return pa.table(columns)


def _part(rng: np.random.Generator) -> pa.Table:
    kinds = zip(*(_pick(rng, words, PARTS) for words in TYPES), strict=True)
    boxes = zip(*(_pick(rng, words, PARTS) for words in CONTAINERS), strict=True)
    names = zip(_pick(rng, COLORS, PARTS), _pick(rng, COLORS, PARTS), strict=True)
    return pa.table(
        {
            "p_partkey": pa.array(range(1, PARTS + 1), pa.int64()),
            "p_name": [" ".join(each) for each in names],
            "p_mfgr": _pick(rng, ("Manufacturer#1", "Manufacturer#2"), PARTS),
            "p_brand": _pick(rng, ("Brand#12", "Brand#23", "Brand#34", "Brand#45"), PARTS),
            "p_type": [" ".join(each) for each in kinds],
            "p_size": pa.array(rng.integers(1, 51, PARTS), pa.int32()),
            "p_container": [" ".join(each) for each in boxes],
        }
    )


def _partsupp(rng: np.random.Generator) -> pa.Table:
    parts = np.repeat(np.arange(1, PARTS + 1), 4)
    suppliers = (parts + np.tile(np.arange(4), PARTS) * 12) % SUPPLIERS + 1
    return pa.table(
        {
            "ps_partkey": pa.array(parts, pa.int64()),
            "ps_suppkey": pa.array(suppliers, pa.int64()),
            "ps_availqty": pa.array(rng.integers(1, 100, len(parts)), pa.int32()),
            "ps_supplycost": _money(rng, 1, 1000, len(parts)),
        }
    )


def _orders(rng: np.random.Generator) -> pa.Table:
    days = np.sort(rng.integers(0, DAYS, ORDERS))
    return pa.table(
        {
            "o_orderkey": pa.array(np.arange(1, ORDERS + 1), pa.int64()),
            "o_custkey": pa.array(rng.integers(1, CUSTOMERS * 2 // 3, ORDERS), pa.int64()),
            "o_orderstatus": _pick(rng, ("F", "O", "P"), ORDERS),
            "o_totalprice": _money(rng, 100, 50000, ORDERS),
            "o_orderdate": _days(days),
            "o_orderpriority": _pick(rng, ("1-URGENT", "2-HIGH", "3-MEDIUM", "4-LOW"), ORDERS),
            "o_shippriority": pa.array(np.zeros(ORDERS), pa.int32()),
            "o_comment": _pick(rng, ("none", "special packages requests", "slow"), ORDERS),
        }
    )


def _lineitem(rng: np.random.Generator, orders: pa.Table) -> pa.Table:
    lines = rng.integers(1, 8, ORDERS)
    keys = np.repeat(np.arange(1, ORDERS + 1), lines)
    count = len(keys)
    ordered = np.repeat(orders["o_orderdate"].to_numpy().astype("datetime64[D]") - FIRST_DAY, lines).astype(np.int64)
    shipped, promised = ordered + rng.integers(1, 122, count), ordered + rng.integers(30, 91, count)
    parts = rng.integers(1, PARTS + 1, count)
    return pa.table(
        {
            "l_orderkey": pa.array(keys, pa.int64()),
            "l_partkey": pa.array(parts, pa.int64()),
            "l_suppkey": pa.array((parts + rng.integers(0, 4, count) * 12) % SUPPLIERS + 1, pa.int64()),
            "l_quantity": rng.integers(1, 51, count).astype(np.float64),
            "l_extendedprice": _money(rng, 900, 95000, count),
            "l_discount": np.round(rng.integers(0, 11, count) / 100, 2),
            "l_tax": np.round(rng.integers(0, 9, count) / 100, 2),
            "l_returnflag": _pick(rng, ("R", "A", "N"), count),
            "l_linestatus": _pick(rng, ("O", "F"), count),
            "l_shipdate": _days(shipped),
            "l_commitdate": _days(promised),
            "l_receiptdate": _days(shipped + rng.integers(1, 31, count)),
            "l_shipinstruct": _pick(rng, ("DELIVER IN PERSON", "NONE"), count),
            "l_shipmode": _pick(rng, ("MAIL", "SHIP", "AIR", "REG AIR", "TRUCK"), count),
        }
    )
