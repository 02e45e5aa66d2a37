"""Make files in the shape of those that people have: logs, exports, events, sensor readings.

Every file is made from numbers and a few words, the same each time. ``FILES`` names them all, with what must come out:
rows, the time of the first one, and columns that must be there. It does not hold anything that others wrote.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

START = datetime(2026, 3, 14, 12, 0, 0, tzinfo=UTC)
ROWS = 40


@dataclass(frozen=True, slots=True)
class MadeFile:
    """A file, and what a table made for it holds."""

    name: str
    about: str  # as docs/ingest.md has it
    make: Callable[[], bytes]
    columns: frozenset[str]
    time: str = "ts"
    rows: int = ROWS
    first: datetime = START
    options: tuple[str, ...] = ()  # that the error without them names
    error: str = ""
    facts: dict[str, object] = field(default_factory=dict)  # of the first row


def at(n: int) -> datetime:
    return START + timedelta(seconds=37 * n)


def lines(make: Callable[[int], str], *, end: str = "\n", encoding: str = "utf-8", head: str = "") -> bytes:
    return (head + "".join(make(n) + end for n in range(ROWS))).encode(encoding)


def _syslog() -> bytes:
    return lines(lambda n: f"{at(n):%b} {at(n).day:2d} {at(n):%H:%M:%S} gate sshd[{900 + n}]: Accepted key for user{n}")


def _rfc5424() -> bytes:
    stamp = "%Y-%m-%dT%H:%M:%S"
    return lines(lambda n: f'<34>1 {at(n):{stamp}}.00{n % 10}Z gate su {n} ID47 [x@1 a="b"] user {n} failed')


def _access(agent: bool) -> Callable[[], bytes]:
    def line(n: int) -> str:
        rest = f' "https://example.org/{n}" "Browser/{n % 3}.0"' if agent else ""
        request = f'"GET /item/{n}?q=1 HTTP/1.1" {200 + 4 * (n % 2)} {"-" if n % 5 == 4 else 512 + n}'
        return f"10.0.0.{n} - {'-' if n % 2 else 'ann'} [{at(n):%d/%b/%Y:%H:%M:%S} +0000] {request}{rest}"

    return lambda: lines(line)


def _error_log() -> bytes:
    return lines(
        lambda n: f"[{at(n):%a %b %d %H:%M:%S.000000 %Y}] [core:error] [pid {n}] [client 10.0.0.{n}:80] no file"
    )


def _kubernetes() -> bytes:
    stamp = "%Y-%m-%dT%H:%M:%S"
    return lines(lambda n: f"{at(n):{stamp}}.123456789Z {'stderr' if n % 4 else 'stdout'} F handled request {n}")


def _java() -> bytes:
    def event(n: int) -> str:
        level = "ERROR" if n % 3 == 0 else "INFO"
        head = f"{at(n):%Y-%m-%d %H:%M:%S},{n:03d} {level}  [worker-{n % 4}] shop.Cart - order {n}"
        trace = "\njava.lang.IllegalStateException: out of stock\n\tat shop.Cart.buy(Cart.java:42)"
        return head + (trace + "\nCaused by: java.io.IOException\n\t... 3 more" if n % 3 == 0 else "")

    return lines(event)


def _windows_events() -> bytes:
    def event(n: int) -> str:
        system = {"EventID": 4624 + n % 3, "TimeCreated": {"SystemTime": f"{at(n):%Y-%m-%dT%H:%M:%S}.1234567Z"}}
        return json.dumps({"System": {**system, "Computer": "pc1"}, "EventData": {"TargetUserName": f"user{n}"}})

    return lines(event, end="\r\n")


def _windows_powershell() -> bytes:
    rows = [{"TimeCreated": f"/Date({int(at(n).timestamp() * 1000)})/", "Id": n, "Message": "ok"} for n in range(ROWS)]
    return ("\ufeff" + json.dumps(rows, indent=4)).encode("utf-16-le")


def _windows_csv() -> bytes:
    head = "Level,Date and Time,Source,Event ID,Task Category\r\n"
    return lines(
        lambda n: f"Information,{at(n).month}/{at(n).day}/{at(n):%Y %I:%M:%S %p},Kernel-General,{n},(1)",
        end="\r\n", head="\ufeff" + head,
    )  # fmt: skip


def _cloudtrail() -> bytes:
    def record(n: int) -> dict[str, object]:
        return {
            "eventVersion": "1.08",
            "eventTime": f"{at(n):%Y-%m-%dT%H:%M:%SZ}",
            "eventName": "GetObject",
            "userIdentity": {"type": "IAMUser", "userName": f"user{n}"},
        }

    return json.dumps({"Records": [record(n) for n in range(ROWS)]}).encode()


def _journald() -> bytes:
    return lines(
        lambda n: json.dumps(
            {"__REALTIME_TIMESTAMP": str(int(at(n).timestamp()) * 1_000_000), "_PID": str(n), "MESSAGE": f"unit {n}",
             "_HOSTNAME": "gate", "PRIORITY": "6", "__MONOTONIC_TIMESTAMP": str(n * 1000)}
        )
    )  # fmt: skip


def _packets() -> bytes:
    def packet(n: int) -> dict[str, object]:
        frame = {"frame.time_epoch": f"{int(at(n).timestamp())}.000123000", "frame.number": str(n), "frame.len": "60"}
        return {"_index": "packets", "_source": {"layers": {"frame": frame, "ip": {"ip.src": f"10.0.0.{n}"}}}}

    return json.dumps([packet(n) for n in range(ROWS)], indent=2).encode()


def _packets_bulk() -> bytes:
    def packet(n: int) -> str:
        row = {"timestamp": str(int(at(n).timestamp() * 1000)), "layers": {"ip": {"ip_src": f"10.0.0.{n}"}}}
        return json.dumps({"index": {"_index": "packets"}}) + "\n" + json.dumps(row)

    return lines(packet)


def _sheet_us() -> bytes:
    head = "Date,Time,Amount,Note\r\n"
    return lines(
        lambda n: f'{at(n):%m/%d/%Y},{at(n):%I:%M:%S %p},{n}.50,"a ""quoted"", note {n}"', end="\r\n", head=head
    )


def _sheet_german() -> bytes:
    head = "Datum;Wert;Name\r\n"
    return lines(lambda n: f"{at(n):%d.%m.%Y %H:%M:%S};{n}.234,5;Müller {n}", end="\r\n", head=head, encoding="latin-1")


def _sheet_british() -> bytes:
    head = "\ufeffwhen,qty,item\r\n"
    return lines(lambda n: f"{at(n):%d/%m/%Y %H:%M},{n},café {n}", end="\r\n", head=head)


def _sheet_ambiguous() -> bytes:
    return lines(lambda n: f"05/03/2026 {at(n):%H:%M:%S},{n}", head="when,qty\n")


def _sensor() -> bytes:
    return lines(lambda n: f"{int(at(n).timestamp())}.5,probe-{n % 3},{20 + n / 8},{n}")


def _tabs() -> bytes:
    return lines(lambda n: f"{at(n):%Y-%m-%d %H:%M:%S}\t{n}\tstore {n}", head="UtcTime\tCount\tPlace\n")


def _epoch_csv() -> bytes:
    return lines(lambda n: f"{n},{int(at(n).timestamp() * 1000)},{n}", head="id,EventTime,v\n")


def _names_say_nothing() -> bytes:
    return lines(lambda n: f"{n},{at(n):%d-%b-%Y %H:%M:%S},{n * 2}", head="a,b,c\n")


def _windows_text() -> bytes:
    return lines(
        lambda n: f"{at(n):%Y-%m-%d %H:%M:%S} Warnung: Datenträger {n} ist voll", end="\r\n", encoding="utf-16"
    )


def _pretty_json() -> bytes:
    return "\n".join(json.dumps({"At": f"{at(n):%Y-%m-%dT%H:%M:%SZ}", "n": n}, indent=2) for n in range(ROWS)).encode()


def _late_type() -> bytes:
    return lines(lambda n: f"{at(n):%Y-%m-%d %H:%M:%S},{n if n < 30 else 'n.v.'}", head="Timestamp,v\n")


def _no_time_in_some() -> bytes:
    return lines(
        lambda n: json.dumps({"ts": f"{at(n):%Y-%m-%dT%H:%M:%SZ}", "n": n} if n != 7 else {"n": n, "note": "no time"})
    )


SUBSECOND = START + timedelta(microseconds=123456)
FILES = (
    MadeFile("messages", "syslog (RFC 3164)", _syslog, frozenset({"host", "app", "pid", "line"}),
             facts={"app": "sshd"}),
    MadeFile("syslog5424.log", "syslog (RFC 5424)", _rfc5424, frozenset({"host", "app", "line"}),
             facts={"priority": 34}),
    MadeFile("access.log", "nginx access log", _access(True),
             frozenset({"client", "user", "method", "path", "status", "bytes", "agent", "line"}),
             facts={"status": 200, "bytes": 512, "user": "ann", "path": "/item/0?q=1"}),
    MadeFile("access_log", "Apache access log (common)", _access(False), frozenset({"client", "status", "line"})),
    MadeFile("error_log", "Apache error log", _error_log, frozenset({"level", "pid", "client", "line"}),
             facts={"level": "error"}),
    MadeFile("web-0.log", "Kubernetes container log", _kubernetes, frozenset({"stream", "line"}), first=SUBSECOND),
    MadeFile("app.log", "Java, stack traces over several lines", _java, frozenset({"level", "line"}),
             facts={"level": "ERROR"}),
    MadeFile("events.json", "Windows events (JSON lines)", _windows_events, frozenset({"System", "EventData"}),
             first=SUBSECOND),
    MadeFile("winevents.json", "Windows events (PowerShell, UTF-16)", _windows_powershell, frozenset({"Id", "Message"}),
             time="TimeCreated"),
    MadeFile("Application.csv", "Windows events (CSV export)", _windows_csv, frozenset({"Level", "Source", "Event ID"}),
             time="Date and Time"),
    MadeFile("cloudtrail.json", "CloudTrail", _cloudtrail, frozenset({"eventName", "userIdentity"}), time="eventTime"),
    MadeFile("journal.json", "journald JSON", _journald, frozenset({"MESSAGE", "_HOSTNAME"}),
             time="__REALTIME_TIMESTAMP"),
    MadeFile("packets.json", "packets (JSON list)", _packets, frozenset({"_index", "_source"}),
             first=START + timedelta(microseconds=123)),
    MadeFile("packets.ek.json", "packets (bulk JSON)", _packets_bulk, frozenset({"layers"}), time="timestamp",
             options=("--missing-time", "skip"), error="--missing-time skip"),
    MadeFile("sheet_us.csv", "spreadsheet, United States", _sheet_us, frozenset({"Date", "Time", "Amount", "Note"}),
             facts={"Amount": 0.5, "Note": 'a "quoted", note 0'}),
    MadeFile("sheet_de.csv", "spreadsheet, Germany (semicolons, decimal commas, Latin-1)", _sheet_german,
             frozenset({"Wert", "Name"}), time="Datum", facts={"Wert": "0.234,5", "Name": "Müller 0"}),
    MadeFile("sheet_uk.csv", "spreadsheet, United Kingdom", _sheet_british, frozenset({"qty", "item"}), time="when",
             facts={"qty": 0, "item": "café 0"}),
    MadeFile("sheet_early.csv", "spreadsheet whose days are all below 13", _sheet_ambiguous, frozenset({"qty"}),
             time="when", first=datetime(2026, 3, 5, 12, tzinfo=UTC),
             options=("--time-format", "%d/%m/%Y %H:%M:%S"), error="--time-format"),
    MadeFile("sensor.csv", "sensor readings without a header", _sensor,
             frozenset({"column_2", "column_3", "column_4"}), time="column_1", first=START + timedelta(seconds=0.5)),
    MadeFile("counts.tsv", "tabs", _tabs, frozenset({"Count", "Place"}), time="UtcTime"),
    MadeFile("ids.csv", "milliseconds since 1970", _epoch_csv, frozenset({"id", "v"}), time="EventTime"),
    MadeFile("abc.csv", "columns whose names say nothing", _names_say_nothing, frozenset({"a", "c"}), time="b"),
    MadeFile("disk.txt", "text in UTF-16", _windows_text, frozenset({"line"})),
    MadeFile("objects.json", "JSON objects over several lines", _pretty_json, frozenset({"n"}), time="At"),
    MadeFile("late.csv", "a column that changes its type", _late_type, frozenset({"v"}), time="Timestamp"),
    MadeFile("gaps.ndjson", "events, one of them without a time", _no_time_in_some, frozenset({"n"}), rows=ROWS - 1,
             options=("--missing-time", "skip"), error="--missing-time skip"),
)  # fmt: skip
