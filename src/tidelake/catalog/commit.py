"""Get commits into a catalog: group, swap, rebase, retry, and find out what became of a lost answer.

Commits of one scope that arrive while another is on its way share the next snapshot. There is no timer: a lone commit
waits for nobody, and the busier the scope, the larger the groups. A commit that takes something away is alone in its
snapshot, so that readers of changes can tell rows that are new from rows that were moved. For each group:

1. take the head, from memory if this process moved it there
2. rebase the group onto it; a commit that a rule forbids fails alone; what goes with the whole group is added. If that
   needs what has expired with the head, go back to 1
3. commit; if the head has moved, a catalog that can hold it still rebases the group there. If not, go back to 2 with
   the new one, after a jittered pause if that happens again
4. if the answer is lost, look for each commit by its id before anything is tried again, and then try with the same ids,
   so that one that was still under way is found and not repeated

A commit ends with its receipt, with the error of the rule that forbids it, at once with a StorageError that is certain
(a full disk, say), or by its deadline: with UnavailableError if it did not get its turn, with the last StorageError if
it was never sent, with CommitUnknownError if it may have been. No try is begun that could not end in time if it took as
long as the longest before it.

What all catalogs do with the commits they are given is here too: check, refit, answer. It does not write objects.
"""

from __future__ import annotations

import math
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from tidelake.catalog.names import check_user
from tidelake.catalog.protocol import Catalog, StaleHead, StepHook, no_hook
from tidelake.errors import (
    CommitUnknownError,
    ConflictError,
    InvalidInputError,
    NotFoundError,
    StorageError,
    TidelakeError,
    UnavailableError,
)
from tidelake.model.rebase import gather
from tidelake.model.snapshot import (
    Commit,
    Counts,
    Held,
    Receipt,
    Scope,
    Snapshot,
    UpdateCoverage,
    advance,
    inputs_of,
    keys_of,
    nothing_held,
)
from tidelake.objects.protocol import DEADLINE_S
from tidelake.runtime.forking import renew_after_fork

MAX_GROUP = 64  # commits in one snapshot: bounds how long one transaction holds up others
FIRST_PAUSE_S = 0.002  # about one commit of somebody else's
LONGEST_PAUSE_S = 0.25
CROWD_S = 60.0  # after the last commit of another process that this one saw, it counts as gone
OLD_HEAD = 100  # snapshots behind the newest, a head is read again: what it counts is too far from what is there
HEADS_KEPT = 4096

HeldAt: TypeAlias = Callable[[Snapshot], Held]  # which time windows are held at a snapshot
Completed: TypeAlias = Callable[[Sequence[Commit], Snapshot], Sequence[Commit]]
Committed: TypeAlias = Callable[[Commit, Receipt], None]  # is told of each commit that is in; it never raises


def nothing_held_at(snapshot: Snapshot) -> Held:
    """Return that no window is held: the answer for tables without exclusive coverage."""
    return nothing_held


def nothing_added(commits: Sequence[Commit], onto: Snapshot) -> Sequence[Commit]:
    """Leave a group that is about to be committed as it is."""
    return commits


def nothing_follows(commit: Commit, receipt: Receipt) -> None:
    """Do nothing after a commit."""


class Coordinator:
    """The door through which a process commits to a catalog. Threads may share it, and should."""

    def __init__(
        self,
        catalog: Catalog,
        *,
        held_at: HeldAt = nothing_held_at,
        completed: Completed = nothing_added,
        committed: Committed = nothing_follows,
        patience_s: float = DEADLINE_S,
        clock_s: Callable[[], float] = time.monotonic,
        sleep_s: Callable[[float], None] = time.sleep,
        chance: Callable[[], float] = random.random,
        at: StepHook = no_hook,
    ) -> None:
        self._catalog = catalog
        self._held_at = held_at
        self._completed = completed
        self._committed = committed
        self._patience_s = patience_s
        self._clock_s = clock_s
        self._sleep_s = sleep_s
        self._chance = chance
        self._at = at
        self._lock = threading.Lock()
        self._lanes: dict[Scope, deque[_Ticket]] = {}  # a scope is here while somebody commits to it
        self._heads: dict[Scope, Snapshot] = {}
        self._crowded: dict[Scope, float] = {}  # when another process was last seen to commit there
        renew_after_fork(self)

    def renew_after_fork(self) -> None:
        """Leave the commits that were under way to the parent."""
        self._lock, self._lanes = threading.Lock(), {}

    def head(self, scope: Scope) -> Snapshot:
        """Return a recent head to build a commit on: the last one this process saw, or else the catalog's."""
        return self._heads.get(scope) or self._see(self._catalog.head(scope))

    def is_crowded(self, scope: Scope) -> bool:
        """Whether other processes commit to a scope too: what one of them is to do, all would do at once."""
        return self._clock_s() - self._crowded.get(scope, -math.inf) < CROWD_S

    def commit(self, commit: Commit) -> Receipt:
        """Publish a commit, whatever snapshot it was built on, and give its receipt."""
        ticket = _Ticket(commit, self._clock_s() + self._patience_s)
        with self._lock:
            lane = self._lanes.get(commit.scope)
            leads = lane is None
            if lane is None:
                lane = self._lanes[commit.scope] = deque()
            lane.append(ticket)
        if not leads:
            ticket.woken.wait()
        if not ticket.is_settled:
            self._lead(commit.scope, lane)
        receipt = ticket.answer()
        self._committed(commit, receipt)  # by the thread that committed: nobody else waits for it
        return receipt

    def _lead(self, scope: Scope, lane: deque[_Ticket]) -> None:
        """Publish the tickets that wait, this thread's first among them, and hand the lead to the next."""
        with self._lock:
            group = _next_group(lane)
        try:
            self._publish(scope, group)
        except BaseException as error:
            for ticket in group:
                if not ticket.is_settled:
                    ticket.fail(error if isinstance(error, Exception) else _unknown(ticket.commit, error))
            if not isinstance(error, Exception):
                raise
        finally:
            with self._lock:
                if lane:
                    lane[0].woken.set()
                else:
                    del self._lanes[scope]
            for ticket in group:
                ticket.woken.set()

    def _publish(self, scope: Scope, group: Sequence[_Ticket]) -> None:
        """Settle every ticket of a group."""
        attempt = _Attempt(self._heads.get(scope), min(ticket.deadline_s for ticket in group))
        while waiting := [ticket for ticket in group if not ticket.is_settled]:
            try:
                with self._timed(attempt):
                    self._try(scope, waiting, attempt)
            except StaleHead as stale:
                attempt.head, attempt.is_fresh = stale.head, True
                self._pause(attempt, waiting, after=1)
            except CommitUnknownError as error:
                attempt.forget_head()
                for ticket in waiting:
                    ticket.is_uncertain = True
                self._find_out(scope, waiting, attempt)
                self._pause(attempt, waiting, after=0, cause=error)
            except StorageError as error:
                attempt.forget_head()
                if error.is_certain:
                    self._give_up(waiting, error)
                else:
                    self._pause(attempt, waiting, after=0, cause=error)
            except TidelakeError as error:
                judged_at = attempt.head
                attempt.forget_head()
                if isinstance(error, NotFoundError) and self._is_past(scope, judged_at):
                    self._pause(attempt, waiting, after=1, cause=error)
                else:
                    self._blame(scope, waiting, error)
        if attempt.head is None:
            self._heads.pop(scope, None)
        else:
            self._see(attempt.head)

    def _try(self, scope: Scope, waiting: Sequence[_Ticket], attempt: _Attempt) -> None:
        # 1. Take the head.
        if attempt.head is None:
            attempt.head, attempt.is_fresh = self._catalog.head(scope), True
        self._at("coordinator.head")
        # 2. Rebase.
        commits = [ticket.commit for ticket in waiting]
        inputs = {item for commit in commits for item in inputs_of(commit)}
        live = self._catalog.live(scope, inputs) if inputs else frozenset()
        has_claims = any(commit.claims for commit in commits)
        held = self._held_at(attempt.head) if has_claims else nothing_held
        accepted, refused = gather(commits, attempt.head, live=live, held=held)
        if refused and not attempt.is_fresh:
            attempt.forget_head()  # what it lacks may be in the newest
            return
        by_id = {ticket.commit.id: ticket for ticket in waiting}
        for commit, error in refused:
            self._refuse(by_id[commit.id], error)
        if not accepted:
            return
        accepted = list(self._completed(accepted, attempt.head))
        # 3. Commit.
        self._at("coordinator.commit")
        onto, attempt.head = attempt.head, None
        receipts = self._catalog.commit(accepted, onto=onto, rebase=True)
        if not any(receipt.replayed for receipt in receipts):
            self._learn(accepted, onto, receipts[0], attempt)
        for commit, receipt in zip(accepted, receipts, strict=True):
            by_id[commit.id].succeed(receipt)

    def _is_past(self, scope: Scope, head: Snapshot | None) -> bool:
        """Whether a head is not the newest any more, so that it may have expired and what it held be gone."""
        try:
            return head is not None and self._catalog.head(scope).id != head.id
        except NotFoundError:
            return False

    def _learn(self, accepted: Sequence[Commit], onto: Snapshot, receipt: Receipt, attempt: _Attempt) -> None:
        """Know the new head without asking, if it follows from what is known."""
        if receipt.shared or receipt.sequence != onto.sequence + 1:
            self._crowded[onto.scope] = self._clock_s()
        if receipt.shared:
            if receipt.sequence - onto.sequence < OLD_HEAD:
                attempt.head = onto  # good enough to start from: where so many commit, nobody's head is the newest
            return
        if receipt.sequence != onto.sequence + 1:
            return
        if not any(inputs_of(commit) for commit in accepted):
            new, at_us = receipt.snapshot_id, receipt.committed_us
            attempt.head = advance(onto, accepted, removed=Counts(), snapshot_id=new, at_us=at_us)

    def _refuse(self, ticket: _Ticket, error: TidelakeError) -> None:
        """Fail a commit, unless it happened before: one that is in has itself taken its inputs away."""
        receipt = self._look(ticket.commit)
        if receipt is None:
            ticket.fail(error)
        else:
            ticket.succeed(receipt)

    def _look(self, commit: Commit) -> Receipt | None:
        receipt = self._catalog.receipt(commit.scope, commit_id=commit.id)
        for key in keys_of(commit):
            receipt = receipt or self._catalog.receipt(commit.scope, key=key)
        return receipt

    def _find_out(self, scope: Scope, waiting: Sequence[_Ticket], attempt: _Attempt) -> None:
        """Settle the commits that are in; the others may be tried again. CommitUnknownError if nobody answers."""
        # 4. Look before anything is tried again.
        self._at("coordinator.unknown")
        while True:
            try:
                with self._timed(attempt):
                    for ticket in waiting:
                        receipt = self._catalog.receipt(scope, commit_id=ticket.commit.id)
                        if receipt is not None:
                            ticket.succeed(receipt)
                return
            except StorageError as failure:
                if self._is_late(attempt):
                    self._give_up(waiting, failure)
                    return
                self._sleep_s(self._pause_s(attempt))

    def _blame(self, scope: Scope, waiting: Sequence[_Ticket], error: TidelakeError) -> None:
        """Fail the commit that an error names; if it names none, let each try on its own."""
        culprit = error.facts.get("commit") if isinstance(error, ConflictError) else None
        for ticket in waiting:
            if ticket.commit.id == culprit:
                self._refuse(ticket, error)
                return
        if len(waiting) == 1:
            waiting[0].fail(error)
            return
        for ticket in waiting:
            self._publish(scope, [ticket])

    def _pause(
        self, attempt: _Attempt, waiting: Sequence[_Ticket], *, after: int, cause: TidelakeError | None = None
    ) -> None:
        """Wait a little, longer each time; give up when patience is at its end."""
        if self._is_late(attempt):
            self._give_up(waiting, cause)
        elif attempt.pauses >= after:
            self._sleep_s(self._pause_s(attempt))
        else:
            attempt.pauses += 1

    def _give_up(self, waiting: Sequence[_Ticket], cause: TidelakeError | None) -> None:
        """Fail those that have no answer: with the cause, or as unknown if an earlier try may have succeeded."""
        for ticket in waiting:
            if ticket.is_settled:
                continue
            if ticket.is_uncertain:
                ticket.fail(_unknown(ticket.commit, cause))
            else:
                ticket.fail(cause or UnavailableError("commit did not get its turn", commit=ticket.commit.id))

    def _is_late(self, attempt: _Attempt) -> bool:
        """Whether another try, as long as the longest so far, would end after the deadline."""
        return self._clock_s() + attempt.longest_s >= attempt.deadline_s

    @contextmanager
    def _timed(self, attempt: _Attempt) -> Iterator[None]:
        begun_s = self._clock_s()
        try:
            yield
        finally:
            attempt.longest_s = max(attempt.longest_s, self._clock_s() - begun_s)

    def _pause_s(self, attempt: _Attempt) -> float:
        attempt.pauses += 1
        return self._chance() * min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(attempt.pauses, 20))

    def _see(self, head: Snapshot) -> Snapshot:
        if len(self._heads) >= HEADS_KEPT:
            self._heads.clear()
            self._crowded.clear()
        self._heads[head.scope] = head
        return head


@dataclass(slots=True)
class _Attempt:
    """How far a group has got."""

    head: Snapshot | None
    deadline_s: float
    is_fresh: bool = False  # the head was read for this group
    pauses: int = 0
    longest_s: float = 0.0  # how long a try took, at most

    def forget_head(self) -> None:
        self.head, self.is_fresh = None, False


@dataclass(slots=True, eq=False)
class _Ticket:
    """A commit that waits for its answer."""

    commit: Commit
    deadline_s: float  # after which no try begins
    woken: threading.Event = field(default_factory=threading.Event)  # it is settled, or leads
    receipt: Receipt | None = None
    error: Exception | None = None
    is_uncertain: bool = False  # an earlier try may have succeeded

    @property
    def is_settled(self) -> bool:
        return self.receipt is not None or self.error is not None

    def succeed(self, receipt: Receipt) -> None:
        """Settle with a receipt. What an uncertain try of this very commit did is no replay."""
        own = self.is_uncertain and receipt.commit_id == self.commit.id
        self.receipt = replace(receipt, replayed=False) if own else receipt

    def fail(self, error: Exception) -> None:
        self.error = error

    def answer(self) -> Receipt:
        """Return the receipt, or raise the error, once: who handles it lets go of all that its traceback holds."""
        if self.receipt is not None:
            return self.receipt
        error, self.error = self.error, None
        try:
            raise error or AssertionError("a ticket is settled before it is answered")
        finally:
            del error


def check_commits(commits: Sequence[Commit], onto: Snapshot) -> None:
    """Refuse what a catalog cannot publish as one snapshot on ``onto``."""
    if not commits:
        raise InvalidInputError("nothing to commit")
    if onto.scope.user:
        check_user(onto.scope.user)
    for commit in commits:
        if commit.scope != onto.scope or commit.base != onto.sequence:
            raise InvalidInputError(
                "a commit is built on another snapshot", commit=commit.id, base=commit.base, onto=onto.sequence
            )


def lost_race(onto: Snapshot, head: Snapshot) -> StaleHead:
    """Return that the head is no longer the snapshot that commits were built on."""
    return StaleHead("commit lost the race", head=head, scope=onto.scope, expected=onto.sequence, found=head.sequence)


def refitted(commits: Sequence[Commit], onto: Snapshot) -> list[Commit]:
    """Rebase commits onto a snapshot; whether what they take away is live shows when it is taken."""
    accepted, refused = gather(commits, onto, live={item for commit in commits for item in inputs_of(commit)})
    if refused:
        raise refused.pop(0)[1]
    return accepted


def passed_over(commits: Sequence[Commit], snapshot: Snapshot) -> frozenset[str]:
    """Return the keys of united coverage that commits bring and their snapshot does not name, having a newer one."""
    brought = {a.coverage.key for commit in commits for a in commit.actions if isinstance(a, UpdateCoverage)}
    return frozenset(brought - {snapshot.coverage.key} if snapshot.coverage else brought)


def answers_of(
    commits: Sequence[Commit], replayed: Mapping[int, Receipt | int], receipts: Mapping[str, Receipt]
) -> list[Receipt]:
    """Return each commit's receipt, in order: its own, the first, or its twin's."""
    given: list[Receipt] = []
    for at, commit in enumerate(commits):
        match replayed.get(at):
            case None:
                given.append(receipts[commit.id])
            case Receipt() as first:
                given.append(first)
            case int(twin):
                given.append(replace(given[twin], replayed=True))
    return given


def _next_group(lane: deque[_Ticket]) -> list[_Ticket]:
    """Take the tickets that share the next snapshot off a lane."""
    group = [lane.popleft()]
    while lane and len(group) < MAX_GROUP and not any(inputs_of(ticket.commit) for ticket in (group[0], lane[0])):
        group.append(lane.popleft())
    return group


def _unknown(commit: Commit, cause: BaseException | None) -> CommitUnknownError:
    error = CommitUnknownError("it is not known whether a commit happened", commit=commit.id, reason=cause)
    error.__cause__ = cause
    return error
