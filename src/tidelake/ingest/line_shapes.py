"""Define the shapes of log lines: where the time of a line is, and what else stands around it.

A shape is one regular expression whose group ``ts`` is the time; other groups become columns, and may be missing from a
line. Well-known shapes come first (Kubernetes, syslog, access logs, log4j, …), then a time at the beginning of a line,
then a time anywhere in it. It does not read lines: see ``text_lines``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.ingest.instants import NO_TIME
from tidelake.ingest.time_detection import choose_format
from tidelake.ingest.time_formats import RFC_3339, regex_of, times_in

MAX_SHARE, MIN_SHARE = 0.5, 0.02  # of a sample's lines with a time: sure at once; and not at all below it
LOOK_LINES = 2000

_LEVELS = "trace|debug|info|information|notice|warn|warning|error|err|fatal|critical|crit|severe|alert|emerg"
_LEVEL = rf"(?P<level>(?i:{_LEVELS}))"
_SECONDS = r"[0-9]{2}:[0-9]{2}:[0-9]{2}"
_PART = r"(?:[.,][0-9]+)?"  # of a second
_ZONE = r"(?: ?Z| ?UTC| ?[+-][0-9]{2}:?[0-9]{2})?"
_RFC = rf"[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}T{_SECONDS}(?:\.[0-9]+)?(?:Z|[+-][0-9]{{2}}:[0-9]{{2}})"
_ISO = rf"[0-9]{{4}}[-/.][0-9]{{2}}[-/.][0-9]{{2}}(?:T| +)[0-9]{{2}}:[0-9]{{2}}(?::[0-9]{{2}})?{_PART}{_ZONE}"
_CLOCK = rf"[0-9]{{1,2}}:[0-9]{{2}}(?::[0-9]{{2}}{_PART})?(?: ?[AaPp][Mm])?"
_DATED = rf"[0-9]{{1,2}}[./-][0-9]{{1,2}}[./-][0-9]{{2,4}},? +{_CLOCK}"
_NAMED = (
    r"(?:[A-Z][a-z]{2},? )?(?:[A-Z][a-z]{2} +[0-9]{1,2}|[0-9]{1,2}[ /-][A-Z][a-z]{2})(?:,? ?[0-9]{4}|[ /-][0-9]{4})?"
    rf"[ :,]+{_SECONDS}{_PART}(?: ?[AaPp][Mm])?(?: (?:UTC|GMT|[+-][0-9]{{4}}))?(?: [0-9]{{4}})?"
)
_COMPACT = rf"[0-9]{{8}}[T -]?[0-9]{{2}}:?[0-9]{{2}}:?[0-9]{{2}}{_PART}Z?|[0-9]{{6}} [0-9]{{2}}:?[0-9]{{2}}:?[0-9]{{2}}"
_SHORT = rf"[0-9]{{2}}[./-][0-9]{{2}} {_SECONDS}{_PART}"
_EPOCH = r"1[0-9]{9}(?:\.[0-9]+)?|1[0-9]{12}|1[0-9]{15}|1[0-9]{18}"
_TIMES = (_ISO, _NAMED, _DATED, _COMPACT, _SHORT, _EPOCH)
_AFTER = rf"(?:[\])]?[\s,:|-]*(?:\[(?P<thread>[^\]\n]{{1,80}})\][\s|-]*)?[\[(]?{_LEVEL}[\])]?[\s:|,-])?"
_PROGRAM = r"(?P<app>[^:\[\s]+)(?:\[(?P<pid>[0-9]+)\])?:"


@dataclass(frozen=True, slots=True)
class LineShape:
    """A regular expression, and the one format its times have if it has only one."""

    name: str
    pattern: str
    format: str | None = None
    numbers: tuple[str, ...] = ()  # groups that are numbers

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(name for name in re.findall(r"\(\?P<(\w+)>", self.pattern) if name != "ts")


SHAPES = (
    LineShape("kubernetes", rf"^(?P<ts>{_RFC}) (?P<stream>stdout|stderr) (?P<flags>[FP])\S* ", RFC_3339),
    LineShape(
        "syslog 5424",
        r"^<(?P<priority>[0-9]{1,3})>1 (?P<ts>[0-9]{4}-\S+)"
        r"(?: (?P<host>\S+) (?P<app>\S+) (?P<pid>\S+) (?P<msgid>\S+) )?",
        RFC_3339,
        ("priority",),
    ),
    LineShape(
        "syslog",
        rf"^(?:<(?P<priority>[0-9]{{1,3}})>)?(?P<ts>[A-Z][a-z]{{2}} [ 0-9][0-9] {_SECONDS})"
        rf"(?: (?P<host>\S+) {_PROGRAM})?",
        "%b %d %H:%M:%S",
        ("priority",),
    ),
    LineShape("syslog iso", rf"^(?P<ts>{_RFC}) (?P<host>[A-Za-z][\w.-]*) {_PROGRAM}", RFC_3339),
    LineShape(
        "access log",
        r"^(?:\S+:[0-9]+ )?(?P<client>\S+) (?P<ident>\S+) (?P<user>\S+) "
        rf"\[(?P<ts>[0-9]{{2}}/[A-Z][a-z]{{2}}/[0-9]{{4}}:{_SECONDS} [+-][0-9]{{4}})\]"
        r'(?: "(?P<method>[A-Z]+) (?P<path>\S+)(?: (?P<protocol>[^"\n]*))?" (?P<status>[0-9]{3}) (?P<bytes>[0-9]+|-)'
        r'(?: "(?P<referer>[^"\n]*)" "(?P<agent>[^"\n]*)")?)?',
        "%d/%b/%Y:%H:%M:%S %z",
        ("status", "bytes"),
    ),
    LineShape(
        "error log",
        rf"^\[(?P<ts>[A-Z][a-z]{{2}} [A-Z][a-z]{{2}} +[0-9]{{1,2}} {_SECONDS}{_PART} [0-9]{{4}})\]"
        r"(?: \[(?:\w*:)?(?P<level>\w+)\])?(?: \[pid (?P<pid>[0-9]+)[^\]\n]*\])?(?: \[client (?P<client>[^\]\n]+)\])?",
        "%a %b %d %H:%M:%S %Y",
    ),
    LineShape(
        "spark",
        rf"^(?P<ts>[0-9]{{2}}/[0-9]{{2}}/[0-9]{{2}} {_SECONDS}) "
        r"(?P<level>TRACE|DEBUG|INFO|WARN|ERROR|FATAL) (?P<logger>[^:\s]+):",
        "%y/%m/%d %H:%M:%S",
    ),
    LineShape(
        "klog",
        rf"^(?P<level>[IWEF])(?P<ts>[0-9]{{4}} {_SECONDS}\.[0-9]+) +(?P<thread>[0-9]+) (?P<source>[^\]\s]+)\]",
        "%m%d %H:%M:%S",
    ),
    LineShape(
        "hadoop",
        r"^(?P<ts>[0-9]{6} [0-9]{6}) (?P<thread>[0-9]+) (?P<level>[A-Z]+) (?P<logger>[^:\s]+):",
        "%y%m%d %H%M%S",
    ),
    *(LineShape(f"time first {at}", rf"^[\[(<]?(?P<ts>{time}){_AFTER}") for at, time in enumerate(_TIMES)),
    LineShape("logfmt", r'(?:^|\s)(?:time|ts|timestamp|t|at)="?(?P<ts>[^"\s]+(?: [0-9:.,]+)?)"?'),
    *(
        LineShape(f"time within {at}", rf"^[^\n]{{0,200}}?(?:^|[\s\[(<=|,;\"'])(?P<ts>{time})(?:$|[\s\])>|,;:\"'])")
        for at, time in enumerate(_TIMES)
    ),
)


def shape_of_format(format: str) -> LineShape:
    """Return the shape of lines that have a time of this format somewhere."""
    return LineShape("given", rf"^[^\n]{{0,200}}?(?P<ts>{regex_of(format)})", format)


def find_shape(lines: pa.Array, *, now_us: int) -> tuple[LineShape, str] | None:
    """Return the shape of these lines and the format of their times; None if too few have a time."""
    sample = lines.slice(0, LOOK_LINES)
    sample = sample.filter(pc.match_substring_regex(sample, r"\S"))
    best: tuple[float, LineShape, str] | None = None
    for shape in SHAPES:
        texts = pc.struct_field(pc.extract_regex(sample, shape.pattern), "ts")
        if texts.null_count == len(texts):
            continue
        form = shape.format or choose_format(texts.filter(texts.is_valid()), now_us)
        if form is None:
            continue
        share = float(np.count_nonzero(times_in(texts, form, now_us=now_us) != NO_TIME)) / len(sample)
        if share >= MAX_SHARE:
            return shape, form
        if best is None or share > best[0] * 1.5:
            best = share, shape, form
    if best is None or best[0] < MIN_SHARE:
        return None
    return best[1], best[2]
