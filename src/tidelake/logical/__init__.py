"""Bring values between what columns mean and how they are stored: dates, wall clocks, decimals, bytes, nested types.

``shown`` gives stored values as readers see them, ``stored`` and ``fitted`` the other way; ``stored_test`` turns a
question about meant values into one about stored ones. It may import what knows no table. It does not choose types.
"""

from tidelake.logical.predicates import stored_test
from tidelake.logical.values import fitted, shown, shown_as_plain, stored

__all__ = ["fitted", "shown", "shown_as_plain", "stored", "stored_test"]
