"""Lay out samples by series, find windows, evaluate rates and write points; each loop has a twin of whole columns.

Samples are given in the order in which they were read, series as small numbers. Windows are ``[low, high)`` of samples
that are sorted by series and time. It does not know labels, nor when loops are compiled: who calls asks for that.
"""

from __future__ import annotations

from typing import Any

from tidelake.runtime.compiling import compiled


@compiled
def scatter(
    series: Any, kinds: Any, times: Any, values: Any, places: Any, newest: Any, times_out: Any, values_out: Any
) -> bool:
    """Put each sample to the place of its series; False if a series goes back in time, or stays.

    ``series`` has the series of each kind of samples. ``places`` are where the next of each series goes, ``newest`` the
    times of the last; both go on. What was put out is of no use once it says False.
    """
    for at in range(len(kinds)):
        own = series[kinds[at]]
        time = times[at]
        if time <= newest[own]:
            return False
        newest[own] = time
        place = places[own]
        times_out[place] = time
        values_out[place] = values[at]
        places[own] = place + 1
    return True


@compiled
def find_until(times: Any, first: Any, ends: Any, found: Any) -> None:
    """Find for each (series, end) the place after the last sample that is not later; ends go up."""
    for own in range(len(first) - 1):
        place, last = first[own], first[own + 1]
        for step in range(len(ends)):
            while place < last and times[place] <= ends[step]:
                place += 1
            found[own, step] = place


@compiled
def extrapolate(
    times: Any,
    values: Any,
    low: Any,
    high: Any,
    ends: Any,
    range_ms: Any,
    is_counter: Any,
    is_rate: Any,
    found: Any,
    present: Any,
) -> None:
    """Find how much a series rose in each window, extrapolated to its edges as Prometheus does."""
    for own in range(low.shape[0]):
        begun = risen = 0  # no value falls between the two, where a window has both
        for step in range(low.shape[1]):
            begin, end = low[own, step], high[own, step]
            if end - begin < 2:
                found[own, step] = 0.0
                present[own, step] = False
                continue
            first = values[begin]
            rise = values[end - 1] - first
            if is_counter:
                if begin < begun or risen <= begin:
                    risen = begin + 1
                begun = begin
                while risen < end and not values[risen] < values[risen - 1]:
                    risen += 1
                lost = 0.0
                for place in range(risen, end):
                    if values[place] < values[place - 1]:
                        lost += values[place - 1]
                rise += lost
            sampled = (times[end - 1] - times[begin]) / 1000.0
            to_start = (times[begin] - (ends[step] - range_ms)) / 1000.0
            to_end = (ends[step] - times[end - 1]) / 1000.0
            between = sampled / (end - begin - 1)
            threshold = between * 1.1
            if to_start >= threshold:
                to_start = between / 2
            if is_counter and rise > 0 and first >= 0:  # which cannot have been below zero
                to_zero = sampled * (first / rise)
                if to_zero < to_start:
                    to_start = to_zero
            if to_end >= threshold:
                to_end = between / 2
            factor = (sampled + to_start + to_end) / sampled if sampled != 0 else 1.0
            if is_rate:
                factor = factor / (range_ms / 1000.0)
            found[own, step] = rise * factor
            present[own, step] = True


@compiled
def join_texts(
    lefts: Any, left_ends: Any, left_data: Any, rights: Any, right_ends: Any, right_data: Any, out: Any, ends: Any
) -> None:
    """Write pairs of texts one after the other, each text by its number, and where each pair ends."""
    place = 0
    for at in range(len(lefts)):
        left, right = lefts[at], rights[at]
        for byte in range(left_ends[left], left_ends[left + 1]):
            out[place] = left_data[byte]
            place += 1
        for byte in range(right_ends[right], right_ends[right + 1]):
            out[place] = right_data[byte]
            place += 1
        ends[at + 1] = place
