"""Execute what the documents say: code, test vectors, examples, commands and links."""

from __future__ import annotations

import json
import os
import re
import shlex
import struct
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

import pyarrow as pa
import pytest
import xxhash
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from tidelake.cli.inspect import inspect_extent
from tidelake.cli.main import main
from tidelake.format import WriteOptions, segment_format
from tidelake.kernels.bloom import Filter, Grams, hash_bytes, hash_int
from tidelake.kernels.tokens import tokenize
from tidelake.model.schema import DataType, Schema
from tidelake.objects import ObjectStore, open_store
from tidelake.pruning.outcomes import leaf_bytes
from tidelake.pruning.statistics import column_from_json
from tools import api_reference, cli_reference

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    path for pattern in ("*.md", "docs/**/*.md", "bench/**/*.md", ".github/**/*.md") for path in ROOT.glob(pattern)
)
FORMAT = ROOT / "docs" / "format.md"
EXAMPLE = ROOT / "docs" / "examples" / "example.tlm"

hashes = st.integers(0, 2**64 - 1)


def blocks_of(page: Path, heading: str) -> list[str]:
    """Return the fenced blocks of a page whose opening fence has this heading."""
    return re.findall(rf"^```{heading}\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


def vectors(name: str) -> Any:
    (block,) = blocks_of(FORMAT, f"json {name}")
    return json.loads(block)


def executed(page: Path) -> dict[str, Any]:
    namespace: dict[str, Any] = {}
    for block in blocks_of(page, "python"):
        exec(compile(block, str(page), "exec"), namespace)
    return namespace


SPEC = executed(FORMAT)


def test_hash_in_the_specification_gives_its_vectors_and_is_ours() -> None:
    for text, expected in vectors("hash_of_bytes"):
        assert f"{SPEC['hash_of_bytes'](text.encode()):016x}" == expected == f"{hash_bytes(text.encode()):016x}"
    for number, expected in vectors("hash_of_integer"):
        assert f"{SPEC['hash_of_integer'](number):016x}" == expected == f"{hash_int(number):016x}"


@given(data=st.binary(max_size=40), number=st.integers(-(2**63), 2**63 - 1))
def test_hash_in_the_specification_is_ours_for_anything(data: bytes, number: int) -> None:
    assert SPEC["hash_of_bytes"](data) == hash_bytes(data)
    assert SPEC["hash_of_integer"](number) == hash_int(number)


@given(keys=st.lists(hashes, max_size=50), size=st.sampled_from([8, 16, 64, 1024]), other=hashes)
def test_filter_in_the_specification_is_ours(keys: list[int], size: int, other: int) -> None:
    theirs = SPEC["filter_of"](keys, size)
    ours = Filter(theirs)
    assert all(key in ours for key in keys)
    assert (other in ours) == SPEC["may_hold"](theirs, other)
    if size > 8:
        assert SPEC["folded"](theirs) == ours.folded(size // 2).bits == SPEC["filter_of"](keys, size // 2)


def test_filter_in_the_specification_gives_its_vector() -> None:
    vector = vectors("filters")
    keys = [hash_bytes(text.encode()) for text in vector["texts"]]
    assert Filter(SPEC["filter_of"](keys, 16)).to_text() == vector["16"]
    assert Filter(SPEC["folded"](SPEC["filter_of"](keys, 16))).to_text() == vector["8"]


def test_tokens_in_the_specification_give_its_vectors() -> None:
    for text, expected in vectors("tokens"):
        assert SPEC["tokens_of"](text) == expected == tokenize(text)


@given(st.text())
def test_tokens_in_the_specification_are_ours(text: str) -> None:
    assert SPEC["tokens_of"](text) == tokenize(text)


def test_grams_in_the_specification_give_its_vector() -> None:
    stored, expected = vectors("grams")
    assert SPEC["grams_of"](stored) == expected
    assert Grams.from_text(stored) == Grams.of_tokens(["web", "timeout"])


@given(st.lists(st.from_regex(r"[0-9a-z]{2,12}", fullmatch=True), max_size=5))
def test_grams_in_the_specification_are_ours(tokens: list[str]) -> None:
    expected = {token[at : at + 3] for token in tokens for at in range(len(token) - 2)}
    assert SPEC["grams_of"](Grams.of_tokens(tokens).to_text()) == sorted(expected)


def test_leaves_in_the_specification_give_its_vectors() -> None:
    for path, value, expected in vectors("leaves"):
        assert f"{hash_bytes(leaf_bytes(path, value)):016x}" == expected


def test_checksums_in_the_specification_give_their_vectors() -> None:
    for text, expected in vectors("xxh3"):
        assert xxhash.xxh3_64_hexdigest(text.encode()) == expected


def test_example_has_the_documented_footer_and_rows() -> None:
    data = EXAMPLE.read_bytes()
    table, footer = SPEC["read_whole_extent"](data)
    assert footer == vectors("footer")
    rows = [row | {"ts": round(row["ts"].timestamp() * 1_000_000)} for row in table.to_pylist()]
    assert rows == vectors("rows")
    reader = segment_format("tlm").open_extent(open_store(EXAMPLE.parent, create=False), EXAMPLE.name)
    assert pa.Table.from_batches([reader.read_block(0), reader.read_block(1)]).equals(table)


def test_example_has_checksums_of_the_documented_bytes() -> None:
    data = EXAMPLE.read_bytes()
    (length,) = struct.unpack("<I", data[-9:-5])
    footer = data[-9 - length : -9]
    entries = json.loads(footer)
    assert xxhash.xxh3_64_hexdigest(footer.rpartition(b',"sum":"')[0]) == entries[-1]["sum"]
    assert re.search(rb',"sum":"[0-9a-f]{16}"\}\]$', footer)
    for entry in entries:
        for piece in entry["tide"].values():
            assert xxhash.xxh3_64_hexdigest(data[piece["at"] : piece["at"] + piece["len"]]) == piece["sum"]
            assert all(offset + size <= piece["len"] for offset, size in piece["bufs"])
    assert inspect_extent(open_store(EXAMPLE.parent, create=False), EXAMPLE.name).state == "ok"


def test_writer_still_writes_the_documented_footer(memory_store: ObjectStore) -> None:
    documented = vectors("footer")
    extent = documented[-1]["extent"]
    schema = Schema.from_json(extent["schema"])
    options = WriteOptions(block_rows=2, compression=extent["codec"])
    writer = segment_format("tlm").start_extent(memory_store, "a", schema, extent_id=extent["id"], options=options)
    columns = [[row[name] for row in vectors("rows")] for name in schema.names]
    arrays = [pa.array(values, field.type) for values, field in zip(columns, schema.arrow, strict=True)]
    writer.append(pa.RecordBatch.from_arrays(arrays, schema=schema.arrow))
    result = writer.finish()
    _, written = SPEC["read_whole_extent"](bytes(memory_store.get("a")))
    assert [without_places(entry) for entry in written] == [without_places(entry) for entry in documented]
    assert json.loads(json.dumps(result.column_stats)) == vectors("column_stats")


def without_places(entry: dict[str, Any]) -> dict[str, Any]:
    """Leave out of a footer's entry what depends on the version of Arrow that laid out the buffers."""
    tide = {
        name: {key: value for key, value in piece.items() if key not in ("at", "len", "sum", "bufs")}
        for name, piece in entry["tide"].items()
    }
    return {key: value for key, value in entry.items() if key != "sum"} | {"tide": tide}


def test_column_statistics_in_the_specification_are_readable() -> None:
    known = {name: column_from_json(shape) for name, shape in vectors("column_stats").items()}
    assert (known["service"].distinct, known["status"].high, known["ts"].nulls) == (("auth", "web"), 503, 0)


def test_types_in_the_specification_are_ours() -> None:
    table = FORMAT.read_text().partition("## Types\n")[2].partition("\n### ")[0]
    names = re.findall(r"^\| `([a-zA-Z()]+)` \|", table, re.MULTILINE)
    assert [str(DataType.parse(name.replace("N", "3"))) for name in names] == [name.replace("N", "3") for name in names]
    assert len(names) == 8


@pytest.mark.parametrize("page", ["README.md", "docs/quickstart.md"])
def test_first_minute_runs_as_it_is_written(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    row = {"ts": "2026-03-14T12:00:00Z", "level": "ERROR", "service": "auth", "message": "timeout"}
    (tmp_path / "app.ndjson").write_text(json.dumps(row) + "\n")
    commands = [
        shlex.split(line, comments=True)[1:]
        for block in blocks_of(ROOT / page, "sh")
        for line in block.splitlines()
        if line.startswith("tidelake ")
    ]
    assert commands
    for command in commands:
        result = CliRunner().invoke(main, command)
        assert (result.exit_code, result.stderr) == (0, ""), command
    executed(ROOT / page)


@pytest.mark.parametrize(
    "page",
    ["coverage.md", "keys.md", "kql.md", "log.md", "promql.md", "sql.md", "tables.md", "upkeep.md", "vectors.md"],
)
def test_examples_of_a_page_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    executed(ROOT / "docs" / page)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            assert target.startswith("https://"), target
            continue
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        assert found.exists(), target
        assert found.is_relative_to(ROOT), target
        if anchor:
            assert anchor in anchors_of(found), target


def anchors_of(page: Path) -> set[str]:
    """Return the anchors of a page's headings, by the rule of the usual Markdown viewers."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_index_names_every_page() -> None:
    index = (ROOT / "docs" / "README.md").read_text()
    for page in (ROOT / "docs").glob("**/*.md"):
        name = page.relative_to(ROOT / "docs").as_posix()
        assert name == "README.md" or f"]({name})" in index, name


@pytest.mark.parametrize("tool", [api_reference, cli_reference], ids=["python.md", "cli.md"])
def test_generated_page_is_what_would_be_generated(tool: ModuleType) -> None:
    assert tool.PAGE.read_text() == tool.reference(), "make docs"


def test_pages_build_as_a_site(tmp_path: Path) -> None:
    mkdocs = Path(sys.executable).with_name("mkdocs")
    places = ["--config-file", str(ROOT / "mkdocs.yml"), "--site-dir", str(tmp_path / "site")]
    command = [str(mkdocs), "build", "--strict", "--quiet", *places]
    built = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"PYTHONWARNINGS": "ignore"})
    assert (built.returncode, (tmp_path / "site" / "index.html").exists()) == (0, True), built.stderr


def test_make_targets_that_are_named_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in PAGES:
        named = set(re.findall(r"(?:^|`)make ([a-z]+)", page.read_text(), re.MULTILINE))
        assert named <= targets, page


@pytest.mark.parametrize("picture", sorted((ROOT / "docs").glob("**/*.svg")), ids=lambda picture: picture.name)
def test_pictures_are_well_formed_and_stand_alone(picture: Path) -> None:
    root = ElementTree.parse(picture).getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    for element in root.iter():
        assert not any(name.endswith("href") and not value.startswith("#") for name, value in element.items())
