"""Renew in a forked child what must not be carried across a fork: locks that a thread of the parent may hold.

A child has one thread and a copy of everything else, so a lock that another thread held is held for ever, and what that
thread was changing may be half done. Owners say themselves what to renew. Some things cannot be renewed, such as what
SQLite notes of a transaction inside its process; their owner is asked to let nobody begin one while a fork is under
way. It does not know connections or threads.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Renewed(Protocol):
    """Something that knows what to do in a forked child."""

    def renew_after_fork(self) -> None:
        """Make new locks, and forget what another thread may have left half done."""


_owners: weakref.WeakSet[Renewed] = weakref.WeakSet()


def renew_after_fork(owner: Renewed) -> None:
    """Have an owner renewed in every child that is forked while it lives."""
    _owners.add(owner)


class Held(Protocol):
    """Something that must not be in the middle of its work while a fork is under way."""

    def hold_for_fork(self) -> None:
        """Wait for what is under way, not for long, and let nothing begin."""

    def let_go_after_fork(self) -> None:
        """Go on, in the parent."""


_held: weakref.WeakSet[Held] = weakref.WeakSet()


def hold_for_fork(owner: Held) -> None:
    """Have an owner hold still during every fork while it lives."""
    _held.add(owner)


def _hold_all() -> None:
    for owner in list(_held):
        owner.hold_for_fork()


def _let_go_all() -> None:
    for owner in list(_held):
        owner.let_go_after_fork()


def _renew_all() -> None:
    for owner in list(_owners):
        owner.renew_after_fork()


os.register_at_fork(before=_hold_all, after_in_parent=_let_go_all, after_in_child=_renew_all)
