"""Read data from outside the lake in KQL: only what the budget allows, in the formats that are told."""

from __future__ import annotations

import gzip
import io
import threading
import zipfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidelake import Lake
from tidelake.errors import QueryError, StorageError, UnavailableError

CSV = 'name,size,when,bag\nada,3,2026-01-02,"{""k"": 1}"\ngrace,x,,\n'
COLUMNS = "(name:string, size:long, when:datetime, bag:dynamic)"


class _Files(SimpleHTTPRequestHandler):
    """Serve a folder; ``/away`` leads to where nobody allowed."""

    def do_GET(self) -> None:
        if self.path == "/open/away":
            self.send_response(302)
            self.send_header("Location", "/closed/rows.csv")
            self.end_headers()
            return
        super().do_GET()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("outside")
    for name in ("open", "closed"):
        (folder / name).mkdir()
        (folder / name / "rows.csv").write_text(CSV)
    opened = folder / "open"
    (opened / "rows.csv.gz").write_bytes(gzip.compress(CSV.encode()))
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("rows.csv", CSV)
        archive.writestr("readme.txt", "nothing")
    (opened / "rows.zip").write_bytes(packed.getvalue())
    (opened / "words.txt").write_text("# a list\none\ntwo\n")
    (opened / "rows.json").write_text('{"name": "ada", "bag": {"k": 1}}\n{"name": "grace", "size": 7}\n')
    (opened / "many.json").write_text('[{"name": "ada", "bag": {"k": 1}}, {"name": "grace", "size": 7}]')
    pq.write_table(pa.table({"size": [1, 2], "name": ["a", "b"]}), opened / "rows.parquet")
    (opened / "link.csv").symlink_to(folder / "closed" / "rows.csv")
    return folder


@pytest.fixture(scope="module")
def site(folder: Path) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Files, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def asked(lake: Lake, text: str, *allowed: str) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = lake.kql(text, budget={"external": list(allowed)}).to_arrow().to_pylist()
    return rows


@pytest.mark.parametrize("name", ["rows.csv", "rows.csv.gz", "rows.zip"])
def test_externaldata_reads_a_page_by_its_columns(name: str, world: Lake, site: str) -> None:
    options = "with (format=csv, ignoreFirstRecord=true, zipPattern='*.csv')"
    text = f"externaldata{COLUMNS}[@'{site}/open/{name}'] {options} | extend k = toint(bag.k) | project-away bag"
    found = asked(world, text, f"{site}/open/")
    assert [(row["name"], row["size"], row["k"]) for row in found] == [("ada", 3, 1), ("grace", None, None)]
    assert str(found[0]["when"]) == "2026-01-02 00:00:00+00:00"


@pytest.mark.parametrize("name", ["rows.json", "many.json"])
def test_externaldata_reads_objects_by_name(name: str, world: Lake, folder: Path) -> None:
    rows = f"externaldata{COLUMNS}['{folder}/open/{name}'] with (format='multijson')"
    text = f"{rows} | project name, size, k = toint(bag.k)"
    expected = [{"name": "ada", "size": None, "k": 1}, {"name": "grace", "size": 7, "k": None}]
    assert asked(world, text, str(folder / "open")) == expected


def test_externaldata_reads_lines_and_parquet_and_joins_tables(world: Lake, folder: Path) -> None:
    lines = f"externaldata(word:string)['file://{folder}/open/words.txt']"
    words = f"{lines} | where word !startswith '#' | summarize make_list(word)"
    assert asked(world, words, str(folder / "open")) == [{"list_word": '["one","two"]'}]
    sizes = f"externaldata(name:string, size:int)['{folder}/open/rows.parquet'] | summarize sum(size)"
    assert asked(world, sizes, str(folder / "open")) == [{"sum_size": 3}]
    teams = (
        f"let T = externaldata(name:string)['{folder}/open/rows.parquet']; obs.services | where name !in (T) | count"
    )
    assert asked(world, teams, str(folder)) == [{"Count": 4}]


@pytest.mark.parametrize(
    ("address", "allowed"),
    [
        ("{site}/open/rows.csv", ()),
        ("{site}/open/rows.csv", ("{site}/closed/",)),
        ("{site}/open/../closed/rows.csv", ("{site}/open/",)),
        ("{site}/open/%2e%2e/closed/rows.csv", ("{site}/open/",)),
        ("{site}/open/away", ("{site}/open/",)),
        ("{site}.evil.test/open/rows.csv", ("{site}",)),
        ("{folder}/open/link.csv", ("{folder}/open/",)),
        ("{folder}/open/../closed/rows.csv", ("{folder}/open/",)),
        ("{folder}/opened.csv", ("{folder}/open",)),
        ("ftp://127.0.0.1/rows.csv", ("ftp://127.0.0.1/",)),
    ],
)
def test_externaldata_is_refused_beyond_what_is_allowed(
    address: str, allowed: tuple[str, ...], world: Lake, site: str, folder: Path
) -> None:
    names = {"site": site, "folder": str(folder)}
    text = f"externaldata(name:string)['{address.format(**names)}']"
    with pytest.raises(QueryError) as caught:
        asked(world, text, *(each.format(**names) for each in allowed))
    assert caught.value.kind == "external_refused"
    assert caught.value.facts["column"] == 1


def test_externaldata_says_what_it_cannot_read(world: Lake, folder: Path) -> None:
    with pytest.raises(StorageError, match="cannot read"):
        asked(world, f"externaldata(name:string)['{folder}/none.csv']", str(folder))
    with pytest.raises(QueryError, match="externaldata reads csv"):
        asked(world, f"externaldata(name:string)['{folder}/open/rows.csv'] with (format='avro')", str(folder))
    budget = {"external": [str(folder)], "read": 4}
    with pytest.raises(UnavailableError, match="too large"):
        world.kql(f"externaldata(name:string)['{folder}/open/rows.csv']", budget=budget)
