"""Hold a table of real events, or of made ones like them, of hundreds of paths, to what plain Python finds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import orjson
import pyarrow as pa
import pytest

import tidelake
from tests.support.samples import windows_events
from tidelake import dynamic
from tidelake.lake import Lake
from tidelake.table import Table

FEW = 0.01  # a question that matches less of the rows…
MAX_BYTES = 0.2  # …reads less of the bytes

Event = dict[str, Any]


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    file = windows_events(tmp_path_factory.mktemp("events"))
    with pa.input_stream(str(file), compression="zstd") as stream:
        return [line for line in stream.read().split(b"\n") if line]


@pytest.fixture(scope="module")
def events(lines: list[bytes]) -> list[Event]:
    return [orjson.loads(line) for line in lines]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with tidelake.connect(tmp_path_factory.mktemp("real") / "lake") as opened:
        yield opened


@pytest.fixture(scope="module")
def whole(lake: Lake, lines: list[bytes], events: list[Event]) -> Table:
    """Each event whole in a dynamic column, with its time, its number and its message beside it."""
    columns = {"ts": "timestamp", "n": "long", "message": "string", "event": "dynamic"}
    made = lake.create_table("whole", columns, format="tlm2")
    shape = b'{"ts":%s,"n":%d,"message":%s,"event":%s}'
    rows = [
        shape % (orjson.dumps(event["@timestamp"]), n, orjson.dumps(event.get("Message")), line)
        for n, (line, event) in enumerate(zip(lines, events, strict=True))
    ]
    report = made.append(b"\n".join(rows))
    assert (report.rows, report.overflowed) == (len(events), 0)
    return made


def test_events_come_back_as_the_json_they_were(whole: Table, events: list[Event]) -> None:
    found = whole.scan(["n", "event"], dynamic="cbor").read_all()
    assert found.num_rows == len(events)
    for number, value in zip(found["n"].to_pylist(), found["event"].to_pylist(), strict=True):
        assert dynamic.to_json(dynamic.decode(value)) == events[number]


def test_events_as_columns_lose_nothing(lake: Lake, lines: list[bytes], events: list[Event]) -> None:
    """Let the table make columns of the keys; a field of two types, and what is nested, is a dynamic one.

    Keys that only case tells apart, of which no event has two, are one column.
    """
    made = lake.create_table("columns", {"@timestamp": "timestamp", "n": "long"}, time="@timestamp")
    numbered = [b'{"n":%d,%s' % (n, line[1:]) for n, line in enumerate(lines)]
    assert made.append(b"\n".join(numbered)).rows == len(events)
    assert len(made.schema) > 60
    nested = {column.name for column in made.schema if column.type.kind == "dynamic"} - {"_overflow"}
    assert "tags" in nested
    for batch in made.scan([name for name in made.schema.names if name != "@timestamp"], dynamic="cbor"):
        for row in batch.to_pylist():
            event = {key: value for key, value in events[row.pop("n")].items() if value is not None}
            del event["@timestamp"]
            overflow = row.pop("_overflow")
            held = {} if overflow is None else dynamic.to_json(dynamic.decode(overflow))
            for name in nested & row.keys():
                row[name] = None if row[name] is None else dynamic.to_json(dynamic.decode(row[name]))
            found = {key: value for key, value in row.items() if value is not None} | held
            assert {key.lower(): value for key, value in found.items()} == {
                key.lower(): value for key, value in event.items()
            }


def at(event: Any, path: str) -> Any:
    for key in path.split("."):
        event = event.get(key) if isinstance(event, dict) else None
    return event


def is_number_from(low: float, value: Any) -> bool:
    return type(value) in (int, float) and value >= low


PATHS: dict[str, Callable[[Event], bool]] = {
    "event['EventID'] == 4688": lambda e: at(e, "EventID") == 4688,
    "event['EventID'] == 1 and event['ParentImage'] contains 'svchost'": lambda e: (
        at(e, "EventID") == 1 and holds(at(e, "ParentImage"), "svchost")
    ),
    "event['DestinationPort'] == '389'": lambda e: at(e, "DestinationPort") == "389",
    "event['TargetUserName'] == 'MORDORDC$'": lambda e: at(e, "TargetUserName") == "MORDORDC$",
    "event['LogonType'] in ('3', '5')": lambda e: at(e, "LogonType") in ("3", "5"),
    "event['userIdentity.userName'] == 'pedro'": lambda e: at(e, "userIdentity.userName") == "pedro",
    "exists(event['requestParameters.bucketName'])": lambda e: (
        isinstance(at(e, "requestParameters"), dict) and "bucketName" in e["requestParameters"]
    ),
    "event['ParentImage'] startswith 'c:\\\\windows\\\\system32\\\\dsreg'": lambda e: (
        str(at(e, "ParentImage") or "").lower().startswith("c:\\windows\\system32\\dsreg")
    ),
    "event['Task'] >= 13000": lambda e: is_number_from(13_000, at(e, "Task")),
    "event['SourceProcessId'] == '2088'": lambda e: at(e, "SourceProcessId") == "2088",
}


def holds(text: str | None, needle: str) -> bool:
    return text is not None and needle.lower() in text.lower()


TEXTS: dict[str, Callable[[Event], bool]] = {
    "message contains 'dsregcmd'": lambda e: holds(e.get("Message"), "dsregcmd"),
    "message contains 'Special privileges assigned'": lambda e: holds(e.get("Message"), "Special privileges assigned"),
    "message contains 'V01tmp'": lambda e: holds(e.get("Message"), "V01tmp"),
    "message contains '4648'": lambda e: holds(e.get("Message"), "4648"),
    "message has 'mimikatz'": lambda e: holds(e.get("Message"), "mimikatz"),
    "message contains 'lsass'": lambda e: holds(e.get("Message"), "lsass"),
    "message startswith 'Dns query'": lambda e: (e.get("Message") or "").lower().startswith("dns query"),
    "event['Message'] contains 'psexec'": lambda e: holds(e.get("Message"), "psexec"),
    "event['CommandLine'] contains 'whoami'": lambda e: holds(e.get("CommandLine"), "whoami"),
    "event['QueryName'] contains 'wpad'": lambda e: holds(e.get("QueryName"), "wpad"),
}


@pytest.mark.parametrize("where", [*PATHS, *TEXTS])
def test_questions_find_what_plain_python_finds_and_read_little(whole: Table, events: list[Event], where: str) -> None:
    test = (PATHS | TEXTS)[where]
    wanted = [n for n, event in enumerate(events) if test(event)]
    assert sorted(whole.scan(["n"], where).read_all()["n"].to_pylist()) == wanted
    stages = whole.plan(["n"], where).stages
    if len(wanted) < FEW * len(events):
        assert stages[-1].byte_size < MAX_BYTES * stages[0].byte_size, whole.plan(["n"], where).explain()
