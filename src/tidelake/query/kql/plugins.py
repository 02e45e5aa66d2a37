"""Lower the plugins that count who was active: each is a KQL query over the rows that it is given.

``ACTIVITY`` is the whole list. A plugin's arguments become names that its query sees: rows first get the columns
``id``, ``time`` and the dimensions. Windows are counted from the start, and the window of the end counts. It does not
know sketches: counts are exact.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tidelake.query.kql import syntax
from tidelake.query.kql.binder import Binder, Place
from tidelake.query.kql.naming import name_of
from tidelake.query.kql.parser import parse
from tidelake.query.kql.relations import Relation
from tidelake.query.kql.scope import Deferred, Names

_COUNTS = """
let seen = materialize($rows | where $time >= $start and $time <= $end | extend $bin = bin_at($time, $window, $start));
let firsts = seen | summarize $first = min($bin) by $id{dims}
    | summarize new_dcount = dcount($id) by $first{dims} | project-rename $bin = $first;
seen | summarize ['count'] = count(), ['dcount'] = dcount($id) by $bin{dims}
| join kind=leftouter (firsts) on $bin{dims}
| project $bin{dims}, ['count'], ['dcount'], new_dcount = coalesce(new_dcount, 0)
| sort by {order}$bin asc
| extend aggregated_dcount = row_cumsum(new_dcount{restart})
| project-rename {time} = $bin
"""
_METRICS = """
let seen = materialize($rows | where $time >= $start and $time <= $end
    | summarize by $id, $bin = bin_at($time, $window, $start){dims});
let firsts = seen | summarize $first = min($bin) by $id{dims};
let before = seen | project $id, $before = $bin, $bin = $bin + $window{dims};
let sizes = before | summarize $size = dcount($id) by $bin{dims};
seen
| join kind=leftouter (before) on $id, $bin{dims}
| join kind=leftouter (firsts) on $id{dims}
| summarize dcount_values = dcount($id), dcount_newvalues = dcountif($id, $first == $bin),
    $back = dcountif($id, isnotnull($before)) by $bin{dims}
| join kind=leftouter (sizes) on $bin{dims}
| extend retention_rate = iff(isnull($size), 1.0, todouble($back) / $size)
| project {time} = $bin, dcount_values, dcount_newvalues, retention_rate, churn_rate = 1.0 - retention_rate{dims}
| sort by {order}{time} asc
"""
_NEW = """
let seen = materialize($rows | where $time >= $start and $time <= $end
    | summarize by $id, $to = bin_at($time, $window, $start){dims});
let firsts = materialize(seen | summarize $from = min($to) by $id{dims});
let cohorts = firsts | summarize $size = dcount($id) by $from{dims};
let windows = seen | distinct $to{dims};
let kept = seen | join kind=inner (firsts) on $id{dims} | summarize $kept = dcount($id) by $from, $to{dims};
let fresh = firsts | join kind=inner (seen) on $id{dims} | project $id, $first = $from, $to{dims};
cohorts | extend $one = 1 | join kind=inner (windows | extend $one = 1) on $one{dims} | where $to >= $from{cohort}
| join kind=leftouter (kept) on $from, $to{dims}
| join kind=leftouter (
    cohorts | extend $one = 1 | join kind=inner (fresh | extend $one = 1) on $one{dims}
    | where $first > $from or ($first == $from and $to == $from)
    | summarize $new = dcount($id) by $from, $to{dims}) on $from, $to{dims}
| extend $kept = coalesce($kept, 0)
| project from_{plain} = $from, to_{plain} = $to, dcount_new_values = coalesce($new, 0), dcount_retained_values = $kept,
    dcount_churn_values = $size - $kept, retention_rate = todouble($kept) / $size,
    churn_rate = 1.0 - todouble($kept) / $size{dims}
| sort by {order}from_{plain} asc, to_{plain} asc
"""
_SLIDING = """
$rows | where $time > $start - $lookback and $time < $end + $window
| extend $bin = bin_at($time, $window, $start), $at = range(0, tolong($lookback / $window) - 1, 1)
| mv-expand $at to typeof(long)
| extend {time} = $bin + $at * $window
| where {time} >= $start and {time} <= $end
| summarize Count = count(), ['dcount'] = dcount($id) by {time}{dims}
| sort by {order}{time} asc
"""
_ROLLING = """
let binned = materialize($rows | extend $bin = bin($time, $window));
let last = toscalar(binned | summarize max($bin));
binned | extend $at = range(0, $count - 1, 1)
| mv-expand $at to typeof(long)
| extend {time} = $bin + $at * $window
| where {time} <= last
| summarize {result} = percentile($id, $share) by {time}{dims}
| sort by {order}{time} asc
"""


@dataclass(frozen=True, slots=True)
class _Plugin:
    """A plugin: its query, and what stands after the columns of ids and times."""

    query: str
    arguments: tuple[str, ...]


_PLUGINS: Mapping[str, _Plugin] = {
    "activity_counts_metrics": _Plugin(_COUNTS, ("start", "end", "window")),
    "activity_metrics": _Plugin(_METRICS, ("start", "end", "window")),
    "new_activity_metrics": _Plugin(_NEW, ("start", "end", "window")),
    "sliding_window_counts": _Plugin(_SLIDING, ("start", "end", "lookback", "window")),
}


def _active(b: Binder, relation: Relation, node: syntax.Call, place: Place) -> Relation:
    plugin = _PLUGINS[node.name]
    count = 2 + len(plugin.arguments)
    if len(node.arguments) < count:
        raise b.error(node.at, f"{node.name} needs an id, a time, {', '.join(plugin.arguments)}", kind="arity")
    ids, times, *rest = node.arguments
    given = dict(zip(plugin.arguments, rest, strict=False))
    dims = rest[len(plugin.arguments) :]
    changes: dict[str, str] = {}
    if node.name == "new_activity_metrics":
        cohorts = [each for each in dims if not isinstance(each, syntax.Name) or each.name not in relation.by_name]
        if len(cohorts) > 1:
            raise b.error(cohorts[1].at, "new_activity_metrics knows no rows to look back at", kind="unsupported")
        dims = [each for each in dims if each not in cohorts]
        given |= {"cohort": cohorts[0]} if cohorts else {}
        changes["cohort"] = " and $from == bin_at($cohort, $window, $start)" if cohorts else ""
    return _asked(b, relation, plugin.query, place, {"id": ids, "time": times}, given, dims, changes)


def _rolling(b: Binder, relation: Relation, node: syntax.Call, place: Place) -> Relation:
    if len(node.arguments) < 5:
        raise b.error(
            node.at, "rolling_percentile needs a value, a percentile, a time, a bin and a count", kind="arity"
        )
    value, share, time, window, count, *dims = node.arguments
    scope = b.scope(None, place)
    bins, rank = b.constant(count, scope, "the count of bins"), b.constant(share, scope, "the percentile")
    result = _quoted(f"rolling_{bins}_percentile_{name_of(value) or ''}_{rank}")
    given = {"share": share, "window": window, "count": count}
    return _asked(b, relation, _ROLLING, place, {"id": value, "time": time}, given, dims, {"result": result})


def _asked(
    b: Binder,
    relation: Relation,
    query: str,
    place: Place,
    columns: Mapping[str, syntax.Expression],
    given: Mapping[str, syntax.Expression],
    dims: Sequence[syntax.Expression],
    changes: Mapping[str, str],
) -> Relation:
    """Run a plugin's query over rows that have the columns it names."""
    names = [name_of(each) or f"Column{at}" for at, each in enumerate(dims, start=1)]
    plain = name_of(columns["time"]) or "Timestamp"
    chosen = {f"$plugin_{name}": node for name, node in columns.items()} | dict(zip(names, dims, strict=True))
    items = tuple(syntax.Named((name,), node, node.at) for name, node in chosen.items())
    project = syntax.Operator("project", items, 0, {}, {})
    rows = b.steps.closed(b.pipeline(relation, (project,), place))
    listed = "".join(f", {_quoted(name)}" for name in names)
    joined = f"strcat_delim('\\x01', {listed[2:]})"
    text = query.format(
        dims=listed,
        order="".join(f"{_quoted(name)} asc, " for name in names),
        restart=f", prev({joined}) != {joined}" if names else "",
        time=_quoted(plain),
        plain=plain,
        **{"cohort": "", "result": "", **changes},
    )
    own: dict[str, object] = {"$plugin_rows": rows}
    own |= {f"$plugin_{name}": Deferred(node, place.names, place.text) for name, node in given.items()}
    inner = Names(place.names, own)
    script = parse(_hidden(text))
    for statement in script.statements:
        inner = b.declare(statement, inner)
    assert script.query is not None
    return b.table(script.query, Place(inner, place.text))


def _hidden(text: str) -> str:
    """Write ``$name`` as a name that no author has."""
    found, *rest = text.split("$")
    for part in rest:
        word = part[: next((at for at, letter in enumerate(part) if not letter.isalpha()), len(part))]
        found += f"['$plugin_{word}']{part[len(word) :]}"
    return found


def _quoted(name: str) -> str:
    escaped = name.replace("\\", "\\\\").replace("'", "\\'").replace("{", "{{").replace("}", "}}")
    return f"['{escaped}']"


def _intersect(b: Binder, relation: Relation, node: syntax.Call, place: Place) -> Relation:
    """Count what the first of some sets has, the first two together, and so on."""
    if not node.arguments:
        raise b.error(node.at, "dcount_intersect needs values of hll", kind="arity")
    items = []
    for at in range(len(node.arguments)):
        held: syntax.Expression = node.arguments[0]
        if at:
            held = syntax.Call("set_intersect", node.arguments[: at + 1], node.at)
        items.append(syntax.Named((f"s{at}",), syntax.Call("array_length", (held,), node.at), node.at))
    return b.pipeline(relation, (syntax.Operator("project", tuple(items), node.at, {}, {}),), place)


ACTIVITY: Mapping[str, Callable[[Binder, Relation, syntax.Call, Place], Relation]] = {
    **dict.fromkeys(_PLUGINS, _active),
    "rolling_percentile": _rolling,
    "dcount_intersect": _intersect,
}
