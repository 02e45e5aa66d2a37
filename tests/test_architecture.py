"""Hold the page on the rooms to the rooms there are."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "tidelake"
PAGE = (ROOT / "docs" / "architecture.md").read_text()
NOUNS = {"__init__", "__main__", "errors", "lake", "table"}
MAX_LINES = 600


def rooms() -> set[str]:
    return {path.parent.name for path in SOURCE.glob("*/__init__.py")}


def test_page_names_every_room_and_no_other() -> None:
    assert set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)) == rooms()
    picture = re.search(r"```text\n(.*?)```", PAGE, re.DOTALL)
    assert picture is not None
    assert [room for room in rooms() if not re.search(rf"\b{room}\b", picture[1])] == []


def test_page_names_only_files_that_exist() -> None:
    named = set(re.findall(r"`((?:\w+/)*\w+\.(?:py|java))`", PAGE)) - {"table.py"}
    missing = [name for name in sorted(named) if not ((SOURCE / name).exists() or (ROOT / name).exists())]
    assert not missing


def test_top_level_has_rooms_and_nouns_only() -> None:
    assert {path.stem for path in SOURCE.glob("*.py")} == NOUNS


def test_every_room_says_what_it_is_for() -> None:
    for path in SOURCE.rglob("__init__.py"):
        assert path.read_text().startswith('"""'), path


def test_no_module_is_too_long_to_read() -> None:
    files = [path for suffix in ("py", "java") for path in SOURCE.rglob(f"*.{suffix}")]
    lines = {str(path): len(path.read_text().splitlines()) for path in files}
    assert {path: count for path, count in lines.items() if count > MAX_LINES} == {}
