"""Take rows out of a table by their ids."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from tidelake import Lake
from tidelake.errors import ConflictError
from tidelake.maintain.positions import take_positions
from tidelake.maintain.rewrite import Rewrite
from tidelake.model.schema import SEQ_COLUMN
from tidelake.pruning.plan import ScanPlan
from tidelake.scan.extents import scan
from tidelake.scan.row_ids import RowIds


def numbered(lake: Lake, name: str, where: str | None = None) -> tuple[RowIds, dict[int, int]]:
    """Return the ids of a table's rows, by the value that each row has."""
    table = lake.table(name).handle.pinned()
    snapshot = table.snapshot
    ids = RowIds.of(table.extents(), table.hot(snapshot))
    plan: ScanPlan = table.plan(["n"], where)
    shown = plan.question.schema.with_hidden([SEQ_COLUMN])
    plan = replace(plan, question=replace(plan.question, schema=shown, columns=("n", SEQ_COLUMN)))
    found = scan(ids.numbered(plan), table.footers).read_all().to_pylist()
    return ids, {row["n"]: row[SEQ_COLUMN] for row in found}


@pytest.mark.parametrize("seed", range(4))
def test_rows_leave_by_their_ids_and_all_others_stay(lake: Lake, seed: int) -> None:
    chance = random.Random(seed)
    table = lake.create_table("t", {"ts": "timestamp", "n": "long", "raw": "dynamic"}, time="ts", flush_age="off")
    for first in range(0, 30_000, 10_000):  # of several blocks each
        table.append([{"ts": 1_700_000_000 + n, "n": n, "raw": {"a": n % 7}} for n in range(first, first + 10_000)])
        table.flush()
    for first in range(30_000, 30_040, 10):
        table.append([{"ts": 1_700_000_000 + n, "n": n, "raw": None} for n in range(first, first + 10)])
    ids, by_value = numbered(lake, "t")
    assert len(by_value) == 30_040 == len(set(by_value.values()))
    some = numbered(lake, "t", "n >= 15000 and n < 30005")[1]
    assert some == {n: by_value[n] for n in range(15_000, 30_005)}  # whatever is pruned
    gone = set(chance.sample(range(30_040), chance.choice([1, 300, 20_000]))) | set(range(10_000, 20_000))
    handle = table.handle
    positions = ids.positions(np.array([by_value[n] for n in [*gone, *list(gone)[:5]]]))
    table.append([{"ts": 1_700_000_000, "n": -1}])  # which nobody numbered
    rewrite = Rewrite(handle, handle.snapshot, "delete")
    assert take_positions(rewrite, positions) == len(gone)
    rewrite.commit()
    left = table.to_arrow(["n", "raw"]).to_pylist()
    assert sorted(row["n"] for row in left) == sorted({-1, *range(30_040)} - gone)
    assert all(row["raw"] == f'{{"a":{row["n"] % 7}}}' for row in left if 0 <= row["n"] < 30_000)


def test_rows_that_were_moved_meanwhile_are_not_taken(lake: Lake) -> None:
    table = lake.create_table("t", {"ts": "timestamp", "n": "long"}, time="ts", flush_age="off")
    table.append([{"ts": 1_700_000_000 + n, "n": n} for n in range(10)])
    ids, by_value = numbered(lake, "t")
    table.flush()
    with pytest.raises(ConflictError, match="moved or changed") as refused:
        take_positions(Rewrite(table.handle, table.handle.snapshot, "delete"), ids.positions(np.array([by_value[3]])))
    assert refused.value.kind == "rewritten"
