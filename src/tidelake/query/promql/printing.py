"""Write numbers and times as Prometheus prints them.

A number is the shortest text that reads back the same, without an exponent unless it is very large or small. It does
not write whole answers: see ``answer``.
"""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.query.promql.vectors import Floats, Ints

_SMALL, _LARGE = 1e-6, 1e21  # outside of which a number has an exponent
_POINTED = 1e9  # below which Arrow writes numbers without an exponent
_EXACT = 2.0**53  # below which whole numbers are told apart


def value_text(value: float) -> str:
    """Return one number as a label has it."""
    return str(value_texts(np.array([value], np.float64))[0])


def value_texts(values: Floats) -> pa.Array:
    """Return numbers as the API has them: text, because JSON has no NaN."""
    sizes = np.abs(values)
    whole = (values == np.trunc(values)) & (sizes < _EXACT) & ~((values == 0) & np.signbit(values))
    if whole.all():
        return pa.array(values.astype(np.int64)).cast(pa.string())
    texts = pa.array(values, pa.float64(), from_pandas=False).cast(pa.string())
    if whole.any():
        texts = pc.if_else(
            pa.array(whole), pa.array(np.where(whole, values, 0.0).astype(np.int64)).cast(pa.string()), texts
        )
    odd = ~whole & (values != 0) & ~((sizes >= _SMALL) & (sizes < _POINTED))
    if not odd.any():
        return texts
    mended = [_odd_text(value) for value in values[odd].tolist()]  # few: very large or small, or no numbers
    return pc.replace_with_mask(texts, pa.array(odd), pa.array(mended, pa.string()))


def time_texts(times_ms: Ints) -> pa.Array:
    """Return times as seconds, with three digits after the point if they are not whole."""
    whole, rest = np.divmod(times_ms, 1000)
    texts = pa.array(whole).cast(pa.string())
    if rest.any():
        digits = pc.utf8_lpad(pa.array(rest).cast(pa.string()), 3, padding="0")
        with_rest = pc.binary_join_element_wise(texts, digits, ".")
        texts = pc.if_else(pa.array(rest != 0), with_rest, texts)
    return texts


def _odd_text(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    size = abs(value)
    if size >= _SMALL and size < _LARGE:
        return np.format_float_positional(value, trim="-")
    mantissa, _, exponent = np.format_float_scientific(value, trim="-", exp_digits=2).partition("e")
    return f"{mantissa}e{exponent}"
