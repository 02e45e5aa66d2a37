"""Show that compiled code is kept, and kept only as long as every source that it was compiled from is the same."""

from __future__ import annotations

import ast
import itertools
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeGuard

import pytest

from tidelake.runtime.compiling import CodeFiles
from tidelake.runtime.readiness import LOOP_ROOMS

SOURCE = Path(__file__).parents[2] / "src" / "tidelake"
SCRIPT = """
import numpy as np
from numba.core import event
from tidelake.dynamic.cbor_loops import _hash_path

compiled = []
class Listener(event.Listener):
    def on_start(self, event): compiled.append(event)
    def on_end(self, event): pass
event.register("numba:compile", Listener())
data = np.frombuffer(b"path and text", np.uint8)
print(_hash_path(data, 4), bool(compiled))
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


def test_a_package_that_is_shipped_as_an_archive_finds_its_code_wherever_it_lies(tmp_path: Path) -> None:
    shutil.copytree(SOURCE, tmp_path / "all" / "tidelake", ignore=shutil.ignore_patterns("__pycache__"))
    places = [tmp_path / "first" / "own.zip", tmp_path / "second" / "own.zip"]
    for place in places:
        shutil.make_archive(str(place.with_suffix("")), "zip", tmp_path / "all")
    cache = tmp_path / "cache"
    found = [run(place / "tidelake", cache) for place in places]
    assert [was_compiled for _, was_compiled in found] == [True, False]
    assert len(list(cache.glob("loops-*"))) == 1


class Stepped(threading.Thread):
    """Keep code as another process would, and wait before each file is written until ``step`` is called."""

    def __init__(self, folder: Path, key: tuple[str, ...], code: str) -> None:
        super().__init__()
        self.files, self.key, self.code = CodeFiles(str(folder), "loop", "stamp"), key, code
        self.turn, self.done = threading.Semaphore(0), threading.Semaphore(0)
        self.files._open_for_write = self.waited(self.files._open_for_write)

    def waited(self, opened: Callable[[str], Any]) -> Callable[[str], Any]:
        @contextmanager
        def open_for_write(path: str) -> Iterator[Any]:
            self.done.release()
            self.turn.acquire()
            with opened(path) as file:
                yield file

        return open_for_write

    def run(self) -> None:
        self.files.save(self.key, self.code)
        self.done.release()

    def step(self) -> None:
        """Let it write one more file."""
        self.turn.release()
        self.done.acquire()


@pytest.mark.parametrize("order", sorted(set(itertools.permutations("aabb"))))
def test_processes_that_compile_at_once_never_take_each_others_code(tmp_path: Path, order: tuple[str, ...]) -> None:
    writers = {name: Stepped(tmp_path, (f"signature {name}", "cpu"), f"code of {name}") for name in "ab"}
    for writer in writers.values():
        writer.start()
        writer.done.acquire()
    for name in order:
        writers[name].step()
    for writer in writers.values():
        writer.join()
    kept = [CodeFiles(str(tmp_path), "loop", "stamp").load(writer.key) for writer in writers.values()]
    assert [code for code in kept if code] == [
        writer.code for writer, code in zip(writers.values(), kept, strict=True) if code
    ]
    assert any(kept)


def test_code_that_was_kept_for_other_types_is_compiled_again(tmp_path: Path) -> None:
    """An index that an older release left names the code of the wrong signature."""
    files = CodeFiles(str(tmp_path), "loop", "stamp")
    files.save(("a",), "code of a")
    files.save(("b",), "code of b")
    index = files._load_index()
    files._save_index({("a",): index["b",], ("b",): index["b",]})
    assert (files.load(("a",)), files.load(("b",))) == (None, "code of b")
    assert CodeFiles(str(tmp_path), "loop", "other stamp").load(("b",)) is None


def test_every_compiled_function_is_in_a_room_whose_sources_count() -> None:
    users = [path for path in SOURCE.rglob("*.py") if "runtime.compiling import" in path.read_text()]
    assert users
    counted = tuple(f"{room}/" for room in LOOP_ROOMS)
    assert [path for path in users if not path.relative_to(SOURCE).as_posix().startswith(counted)] == []


MAKERS = {
    "empty",
    "zeros",
    "ones",
    "full",
    "array",
    "arange",
    "concatenate",
    "append",
    "copy",
    "astype",
    "sort",
    "cumsum",
}


def makes_arrays(function: ast.FunctionDef) -> bool:
    calls = {node.func.attr for node in ast.walk(function) if isinstance(node, ast.Call) and is_attribute(node.func)}
    stores = (node for node in ast.walk(function) if isinstance(node, ast.Assign))
    copies = any(isinstance(part, ast.Slice) for each in stores for to in each.targets for part in ast.walk(to))
    return bool(calls & MAKERS) or (copies and function.name != "envelope")  # which sets its counts to one number


def is_attribute(node: ast.AST) -> TypeGuard[ast.Attribute]:
    return isinstance(node, ast.Attribute)


def test_loops_that_count_no_references_make_no_arrays() -> None:
    uncounted = {"compiled", "part", "part_or"}
    found = []
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.decorator_list:
                names = {ast.unparse(each).partition("(")[0] for each in node.decorator_list}
                if names & uncounted and makes_arrays(node):
                    found.append((path.name, node.name))
    assert found == []
