"""Show that compiled code is kept, and kept only as long as every source that it was compiled from is the same."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tidelake.runtime.readiness import LOOP_ROOMS

SOURCE = Path(__file__).parents[2] / "src" / "tidelake"
SCRIPT = """
import numpy as np
from numba.core import event
from tidelake.dynamic.cbor_loops import _hash_leaf

compiled = []
class Listener(event.Listener):
    def on_start(self, event): compiled.append(event)
    def on_end(self, event): pass
event.register("numba:compile", Listener())
data = np.frombuffer(b"path and text", np.uint8)
print(_hash_leaf(data, 4, 115, data, 9, 4, np.uint64(0)), bool(compiled))
"""


def run(package: Path, cache: Path) -> tuple[str, bool]:
    environment = os.environ | {"PYTHONPATH": str(package.parent), "NUMBA_CACHE_DIR": str(cache)}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    hash, was_compiled = done.stdout.split()
    return hash, was_compiled == "True"


def test_a_change_of_a_function_in_another_file_is_compiled_in(tmp_path: Path) -> None:
    package, cache = tmp_path / "tidelake", tmp_path / "cache"
    shutil.copytree(SOURCE, package, ignore=shutil.ignore_patterns("__pycache__"))
    first, was_compiled = run(package, cache)
    assert was_compiled
    assert run(package, cache) == (first, False)
    loops = package / "kernels" / "text_loops.py"
    text = loops.read_text()
    changed = re.sub(r"(def finished\(.*?\n(?:.*\n)*?    return )", r"\1~", text, count=1)
    assert changed != text
    loops.write_text(changed)
    other, was_compiled = run(package, cache)
    assert was_compiled
    assert other != first


def test_every_compiled_function_is_in_a_room_whose_sources_count() -> None:
    users = [path for path in SOURCE.rglob("*.py") if "runtime.compiling import" in path.read_text()]
    assert users
    counted = tuple(f"{room}/" for room in LOOP_ROOMS)
    assert [path for path in users if not path.relative_to(SOURCE).as_posix().startswith(counted)] == []
