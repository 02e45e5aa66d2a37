"""Read and write eight bytes at once, wherever they lie: compiled code does each by one instruction.

Who reads or writes so goes up to seven bytes past what it wants, and makes sure that these are there.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tidelake.runtime.compiling import inlined

_U = np.uint64


@inlined
def eight(data: Any, at: Any) -> Any:
    """Read eight bytes, the first of which is the lowest."""
    place = _U(at)
    return (
        _U(data[place])
        | _U(data[place + _U(1)]) << _U(8)
        | _U(data[place + _U(2)]) << _U(16)
        | _U(data[place + _U(3)]) << _U(24)
        | _U(data[place + _U(4)]) << _U(32)
        | _U(data[place + _U(5)]) << _U(40)
        | _U(data[place + _U(6)]) << _U(48)
        | _U(data[place + _U(7)]) << _U(56)
    )


@inlined
def put_eight(data: Any, at: Any, eight: Any) -> None:
    """Write eight bytes, the lowest first."""
    place = _U(at)
    data[place] = np.uint8(eight)
    data[place + _U(1)] = np.uint8(eight >> _U(8))
    data[place + _U(2)] = np.uint8(eight >> _U(16))
    data[place + _U(3)] = np.uint8(eight >> _U(24))
    data[place + _U(4)] = np.uint8(eight >> _U(32))
    data[place + _U(5)] = np.uint8(eight >> _U(40))
    data[place + _U(6)] = np.uint8(eight >> _U(48))
    data[place + _U(7)] = np.uint8(eight >> _U(56))
