"""Fork a process that asks: the child asks too, whatever the parent's threads were doing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CODE = """
import os, sys, threading
import tidelake
from tidelake.query import session
from tidelake.scan import misfits
from tidelake.spark import pins

lake = tidelake.connect(sys.argv[1])
logs = lake.create_table("t", {"ts": "timestamp", "n": "long"})
logs.append([{"ts": 1_773_489_601 + i, "n": i} for i in range(3_000)])
logs.flush()
text = "select sum(n + 0) as s from t"
assert lake.sql(text, engine="local").to_arrow()["s"].to_pylist() == [4_498_500]

held, over = threading.Event(), threading.Event()
def hold():
    with session._KEPT[lake.handle].lock, pins._PINNED.lock, misfits._counted_before.lock:
        held.set()
        over.wait()
threading.Thread(target=hold, daemon=True).start()
held.wait()
child = os.fork()
if child == 0:
    assert lake.sql(text, engine="local").to_arrow()["s"].to_pylist() == [4_498_500]
    many = "select a.n % 7 as k, count(*) as c from t a join t b on a.n = b.n group by 1 order by 1"
    assert sum(lake.sql(many, engine="local").to_arrow()["c"].to_pylist()) == 3_000
    assert pins.pinned("q", lake.table("t").handle).sequence == lake.table("t").snapshot.sequence
    with misfits._counted_before.lock:
        os._exit(0)
over.set()
assert os.waitpid(child, 0)[1] == 0
assert lake.sql(text, engine="local").to_arrow()["s"].to_pylist() == [4_498_500]
print("both were answered")
"""


def test_a_forked_child_asks_while_a_thread_of_its_parent_holds_every_lock(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE, str(tmp_path / "lake")], capture_output=True, text=True, check=False, timeout=120
    )
    assert (done.stdout, done.stderr) == ("both were answered\n", "")
