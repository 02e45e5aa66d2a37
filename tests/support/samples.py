"""Make small files in the shape of the real data that may lie beside the project, for clones that have none.

Each function returns the path of the real file where there is one, and else writes a made one of the same shape: keys,
types, order in time and rare values are alike, the content is invented. It does not copy anything real.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

SHARED = Path(__file__).parents[3] / "shared" / "data"
BEGIN = datetime(2020, 9, 21, 22, 0, tzinfo=UTC)
EVENT_COUNT = 40_000
PHASE = 2_000  # events of one stretch of time, which have their own rare kinds

Event = dict[str, Any]


def windows_events(folder: Path) -> Path:
    """Return a file of security events: many kinds, hundreds of keys, a field of two types."""
    return _real_or(SHARED / "events/windows_events.ndjson.zst", folder, _events_text)


def series_files(folder: Path) -> list[Path]:
    """Return files of sensor series as CSV, a value every five minutes, with gaps."""
    real = sorted((SHARED / "nab").glob("*.csv.zst"))
    return real or [_write(folder / f"sensor_{n}.csv.zst", _series_text(n)) for n in range(8)]


def log_lines(folder: Path, system: str) -> Path:
    """Return a file of the lines that one of ten systems logs."""
    return _real_or(SHARED / f"loghub/{system}_2k.log.zst", folder, lambda: _log_text(system))


def _real_or(real: Path, folder: Path, made: Callable[[], str]) -> Path:
    return real if real.exists() else _write(folder / real.name, made())


def _write(path: Path, text: str) -> Path:
    with pa.CompressedOutputStream(str(path), "zstd") as stream:
        stream.write(text.encode())
    return path


def _events_text() -> str:
    chance = random.Random(20)
    return "".join(json.dumps(_event(chance, n)) + "\n" for n in range(EVENT_COUNT))


def _event(chance: random.Random, n: int) -> Event:
    phase = n // PHASE
    makers = [_logon, _network, _filler]
    makers += [[_process, _created], [_dns], [_cloud], [_access], [_special]][phase % 5]
    event = chance.choice(makers)(chance, phase)
    event["@timestamp"] = (BEGIN + timedelta(milliseconds=250 * n)).isoformat()
    event["Task"] = str(event["EventID"]) if n % 50 == 0 else event["EventID"]
    event["tags"] = ["made", f"phase-{phase}"]
    event["RecordNumber"] = n
    return event


def _logon(chance: random.Random, phase: int) -> Event:
    name = "MORDORDC$" if phase == 3 and chance.random() < 0.05 else chance.choice(["anna", "ben", "SYSTEM"])
    text = (
        "An account was successfully logged on. Special privileges assigned." if phase == 7 else "An account logged on."
    )
    return {"EventID": 4624, "TargetUserName": name, "LogonType": chance.choice("23579"), "Message": text}


def _network(chance: random.Random, phase: int) -> Event:
    port = "389" if phase == 5 and chance.random() < 0.02 else chance.choice(["80", "443", "53"])
    process = str(1000 * phase + chance.randrange(0, 120, 4))
    return {"EventID": 3, "DestinationPort": port, "SourceProcessId": process, "Message": None}


def _filler(chance: random.Random, phase: int) -> Event:
    count = chance.randrange(3, 9)
    fields: Event = {f"Field{chance.randrange(80)}": chance.choice([1, "one", 1.5, True]) for _ in range(count)}
    return {"EventID": 10 + chance.randrange(3), "Message": f"Handle {chance.randrange(1 << 20):x} opened", **fields}


def _process(chance: random.Random, phase: int) -> Event:
    parent = chance.choice(["svchost.exe", "explorer.exe", "dsregcmd.exe"] if phase == 0 else ["cmd.exe"])
    command = "whoami /all" if phase == 5 and chance.random() < 0.05 else "run"
    parts = {"ParentImage": f"C:\\Windows\\System32\\{parent}", "CommandLine": command}
    return {"EventID": 1, "Message": f"Process Create: {parent}", **parts}


def _created(chance: random.Random, phase: int) -> Event:
    return {"EventID": 4688, "Message": f"A new process has been created by {chance.choice(['psexec', 'task'])}"}


def _dns(chance: random.Random, phase: int) -> Event:
    return {"EventID": 22, "QueryName": chance.choice(["wpad", "db.local", "web.local"]), "Message": "Dns query: made"}


def _cloud(chance: random.Random, phase: int) -> Event:
    who, bucket = chance.choice(["pedro", "maria"]), {"bucketName": f"b{chance.randrange(9)}"}
    parameters = bucket if phase == 2 and chance.random() < 0.2 else None
    return {"EventID": 13_001, "userIdentity": {"userName": who, "type": "User"}, "requestParameters": parameters}


def _access(chance: random.Random, phase: int) -> Event:
    return {"EventID": 11, "Message": f"lsass.exe wrote V01tmp.log {chance.randrange(99)}", "Image": "lsass.exe"}


def _special(chance: random.Random, phase: int) -> Event:
    return {"EventID": 4648, "Message": "A logon was attempted with explicit credentials (4648)"}


def _series_text(number: int) -> str:
    chance = random.Random(number)
    lines, at = ["timestamp,value"], BEGIN + timedelta(days=number)
    for _ in range(3_000):
        at += timedelta(minutes=5 if chance.random() > 0.06 else 5 * chance.randrange(2, 40))
        lines.append(f"{at:%Y-%m-%d %H:%M:%S},{chance.gauss(20, 3):.3f}")
    return "\n".join(lines) + "\n"


_SHAPES = {
    "Apache": "[%a %b %d %H:%M:%S %Y] [notice] worker {n} ready",
    "HDFS": "%y%m%d %H%M%S {n} INFO dfs.Node: block {n} ends",
    "HPC": "{n} node-2 unix.hw state_change.unavailable {epoch} 1 changed",
    "Hadoop": "%Y-%m-%d %H:%M:%S,978 INFO [main] org.made.Job: task {n} created",
    "Linux": "%b %d %H:%M:%S combo sshd(pam_unix)[{n}]: authentication failure",
    "OpenSSH": "%b %d %H:%M:%S LabSZ sshd[{n}]: reverse mapping failed",
    "Proxifier": "[%m.%d %H:%M:%S] web.exe - proxy:{n} open",
    "Spark": "%y/%m/%d %H:%M:%S INFO exec.Backend: registered {n}",
    "Windows": "%Y-%m-%d %H:%M:%S, Info                  CBS    Loaded {n}",
    "Zookeeper": "%Y-%m-%d %H:%M:%S,747 - INFO  [Peer:Election@774] - time out {n}",
}
FIRST_LINES = {
    "Apache": "2005-12-04T04:47:44", "HDFS": "2008-11-09T20:36:15", "HPC": "2004-02-26T14:12:22",
    "Hadoop": "2015-10-18T18:01:47.978", "Linux": "06-14T15:16:01", "OpenSSH": "12-10T06:55:46",
    "Proxifier": "10-30T16:49:06", "Spark": "2017-06-09T20:10:40", "Windows": "2016-09-28T04:30:30",
    "Zookeeper": "2015-07-29T17:41:44.747",
}  # fmt: skip


def _log_text(system: str) -> str:
    """Return 500 lines, whose first has the time that the real file begins with."""
    first = FIRST_LINES[system]
    began = datetime.fromisoformat(first if first[4] == "-" else f"2024-{first}").replace(tzinfo=UTC)
    lines = []
    for n in range(500):
        at = began + timedelta(seconds=n)
        lines.append(at.strftime(_SHAPES[system]).format(n=1000 + n, epoch=round(at.timestamp())))
    return "\n".join(lines) + "\n"
