"""Break the rules of the protocol's model, one bug at a time, and name the damage that a search must find.

It does not search: see ``tests/catalog/test_protocol_model.py``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.support.protocol_world import Cast, Role, Roles
from tidelake.model import snapshot
from tidelake.model.rebase import rebase
from tidelake.model.snapshot import AddExtent, Commit, Manifest, RemoveExtent, Snapshot

WRITER: tuple[str, Role] = ("a", "writer")
OTHER: tuple[str, Role] = ("b", "writer")
COMPACTOR: tuple[str, Role] = ("c", "compactor")
DELETER: tuple[str, Role] = ("d", "deleter")
RESTORER: tuple[str, Role] = ("e", "restorer")
COLLECTOR: tuple[str, Role] = ("g", "collector")
COLLEAGUE: tuple[str, Role] = ("h", "collector")
JOB: tuple[str, Role] = ("j", "job")
PINNER: tuple[str, Role] = ("p", "reader of a pin")
READER: tuple[str, Role] = ("r", "reader")
SECOND: tuple[str, Role] = ("q", "reader")
HISTORIAN: tuple[str, Role] = ("t", "reader as of 2")
HOT_WRITER: tuple[str, Role] = ("a", "hot writer")
FLUSHER: tuple[str, Role] = ("f", "flusher")
UNITER: tuple[str, Role] = ("u", "uniter")
OTHER_UNITER: tuple[str, Role] = ("v", "uniter")
WORKER: tuple[str, Role] = ("w", "worker")
COWORKER: tuple[str, Role] = ("x", "worker")
ALL: Roles = (WRITER, ("b", "writer without key"), COMPACTOR)
RIVALS: Roles = (WRITER, COMPACTOR, ("d", "compactor"))
LEASED: Roles = (WRITER, ("c", "leased compactor"), ("d", "leased compactor"))


def _rebase_without_removals(commit: Commit, onto: Snapshot, **known: Any) -> Commit:
    kept = tuple(action for action in commit.actions if not isinstance(action, RemoveExtent))
    return replace(rebase(commit, onto, **known), actions=kept)


def _rebase_without_asking(commit: Commit, onto: Snapshot, **known: Any) -> Commit:
    return replace(commit, base=onto.sequence)


def _apply_without_asking(manifest: Manifest, commits: list[Commit], **named: Any) -> Manifest:
    added = {action.extent.id for commit in commits for action in commit.actions if isinstance(action, AddExtent)}
    left = {name: extent for name, extent in manifest.extents.items() if name not in added}
    return snapshot.apply(replace(manifest, extents=left), commits, **named)


BUGS: dict[str, tuple[dict[str, Any], Cast, str]] = {
    # commits
    "a full disk is taken for a lost answer": (
        {"fails_at_once": False},
        Cast(ALL, failure="full"),
        "tried again after",
    ),
    "a lost answer is looked for without a deadline": (
        {"ends_by_deadline": False},
        Cast(ALL, failure="deaf"),
        "goes on for ever",
    ),
    "the head is not compared": ({"compares_head": False}, Cast(ALL), "held"),
    "the head is compared in another transaction": ({"swaps_at_once": False}, Cast(ALL), "held"),
    "a replay is not found": ({"finds_replays": False}, Cast(ALL, crashes=1), "the row a is 2 times"),
    "a replay gets a new answer": ({"answers_first": False}, Cast(ALL, crashes=1), "is in an earlier one"),
    "the key is recorded in another transaction": (
        {"keeps_keys_with_commit": False},
        Cast(ALL, crashes=1),
        "the row a is 2 times",
    ),
    "inputs need not be live": (
        {"checks_live": False, "rebase": _rebase_without_asking},
        Cast(RIVALS),
        "inputs were not live",
    ),
    "an abandoned extent is published": ({"checks_pending": False}, Cast(ALL, abandons=1), "which is deleted"),
    "a lease is not fenced": ({"checks_fence": False}, Cast(LEASED), "after its lease was lost"),
    "what is removed is deleted at once": ({"marks_removed": False}, Cast(ALL), "held"),
    "the head expires": ({"expires_below_head": False}, Cast(ALL), "held"),
    "a retained snapshot's extents expire": ({"expires_unseen": False}, Cast(ALL), "held"),
    "objects are registered after they are written": (
        {"registers_first": False},
        Cast(ALL, crashes=1),
        "nobody will ever collect",
    ),
    "the registration ends before the commit": (
        {"stays_registered": False, "checks_pending": False},
        Cast(ALL),
        "which is deleted",
    ),
    "a second try uses the first one's name": (
        {"names_anew": False},
        Cast(ALL, crashes=1, abandons=1),
        "which is deleted",
    ),
    "rows are acknowledged before they are committed": ({"acknowledges_last": False}, Cast(ALL), "which is not there"),
    "no answer is taken for a failure": ({"looks_when_unknown": False}, Cast(ALL, losses=1), "the row b is 2 times"),
    "a moved head is taken for an answer": ({"looks_for_receipt": False}, Cast(ALL, losses=1), "the acknowledged row"),
    "a refusal is passed on without a look": ({"looks_when_refused": False}, Cast(ALL, losses=1), "and it did"),
    "the collector does not heed pending": ({"heeds_pending": False}, Cast(ALL), "which is deleted"),
    "the collector does not heed old snapshots": ({"heeds_retained": False}, Cast(ALL), "which is deleted"),
    "the collector forgets before it deletes": (
        {"forgets_last": False},
        Cast(ALL, crashes=1),
        "nobody will ever collect",
    ),
    "rebase drops removals": ({"rebase": _rebase_without_removals}, Cast(ALL), "2 times"),
    "an extent can be added twice": (
        {"finds_replays": False, "checks_pending": False, "apply": _apply_without_asking},
        Cast(ALL, losses=1),
        "was to take",
    ),
    # whoever rewrites
    "a delete plans at two heads": ({"plans_at_one_head": False}, Cast((WRITER, COMPACTOR, DELETER)), "was to take"),
    "a restore plans at two heads": ({"plans_at_one_head": False}, Cast((WRITER, OTHER, RESTORER)), "was to take"),
    "a delete takes away in one commit and adds in another": (
        {"adds_with_removal": False},
        Cast((WRITER, COMPACTOR, DELETER)),
        "was to take",
    ),
    "a compaction takes away in one commit and adds in another": (
        {"adds_with_removal": False},
        Cast((WRITER, COMPACTOR)),
        "was to take",
    ),
    "a delete goes on with the inputs that are left": (
        {"begins_again": False},
        Cast((WRITER, COMPACTOR, DELETER)),
        "which was to be without it",
    ),
    "a moved head is taken for a deletion": (
        {"looks_for_receipt": False},
        Cast((DELETER, WRITER), losses=1),
        "which was to be without it",
    ),
    "what is restored is not copied": (
        {"copies_anew": False, "checks_pending": False, "keeps_once_named": False},
        Cast((WRITER, DELETER, RESTORER)),
        "which is deleted",
    ),
    # whoever reads
    "a reader takes no lease": ({"takes_lease": False}, Cast((WRITER, READER)), "which has expired"),
    "a lease is given on an expired snapshot": (
        {"checks_retained": False},
        Cast((WRITER, READER)),
        "which has expired",
    ),
    "an expired snapshot is pinned": ({"checks_retained": False}, Cast((WRITER, PINNER)), "which has expired"),
    "a lease is written in another transaction than its snapshot is seen": (
        {"leases_at_once": False},
        Cast((WRITER, READER)),
        "which has expired",
    ),
    "a lease ends before the objects are read": (
        {"holds_to_end": False},
        Cast((WRITER, COMPACTOR, READER)),
        "deleted",
    ),
    "a process holds its newest snapshot only": (
        {"leases_oldest": False},
        Cast((WRITER, READER, SECOND), one_process=True),
        "which has expired",
    ),
    "the first of two readers ends the lease of both": (
        {"frees_last": False},
        Cast((WRITER, READER, SECOND), one_process=True),
        "which has expired",
    ),
    "a reader goes on without what is deleted": (
        {"tells_expired": False},
        Cast((WRITER, COMPACTOR, READER), stalls=1),
        "answers without",
    ),
    "the lease of a crashed reader never ends": (
        {"leases_end": False},
        Cast((WRITER, READER), crashes=1),
        "never ends",
    ),
    # expiry
    "expiry does not heed leases": ({"heeds_leases": False}, Cast((WRITER, READER)), "which has expired"),
    "expiry looks for leases in another transaction": (
        {"expires_at_once": False},
        Cast((WRITER, READER)),
        "which has expired",
    ),
    "expiry does not heed pins": ({"heeds_pins": False}, Cast((WRITER, PINNER)), "which has expired"),
    "a pin keeps a snapshot and not its extents": (
        {"keeps_pinned_extents": False},
        Cast((WRITER, COMPACTOR, PINNER)),
        "held",
    ),
    "what lies between two retained snapshots stays": (
        {"expires_in_holes": False},
        Cast((WRITER, COMPACTOR, DELETER, PINNER)),
        "and it stays",
    ),
    "a time in a hole is answered with an older snapshot": (
        {"answers_no_hole": False},
        Cast((WRITER, OTHER, PINNER, HISTORIAN)),
        "and was given",
    ),
    # Spark jobs
    "the folder of a job is not registered": (
        {"registers_folder": False},
        Cast((JOB, COLLECTOR)),
        "which is deleted",
    ),
    "a job looks for its folder before it names its extents": (
        {"names_before_look": False},
        Cast((JOB, COLLECTOR), abandons=1),
        "which is deleted",
    ),
    "a job does not look for its folder": (
        {"looks_for_folder": False},
        Cast((JOB, COLLECTOR), abandons=1),
        "which is deleted",
    ),
    "a job gives up what it committed": ({"keeps_committed": False}, Cast((JOB, COLLECTOR)), "which is deleted"),
    "a job gives up without asking whether it is in": (
        {"leaves_named": False, "asks_before_forgetting": False},
        Cast((JOB, COLLECTOR), losses=1),
        "which is deleted",
    ),
    "a job registers again what a collection had given up": (
        {"leaves_named": False},
        Cast((JOB, COLLECTOR), losses=1, abandons=1, attempts=1),
        "which is deleted",
    ),
    # hot rows and coverage
    "hot rows that are flushed are forgotten at once": (
        {"marks_flushed": False},
        Cast((HOT_WRITER, FLUSHER)),
        "held",
    ),
    "a flush plans at two heads": (
        {"plans_at_one_head": False},
        Cast((HOT_WRITER, ("b", "hot writer"), FLUSHER)),
        "was to take",
    ),
    "a flush takes hot rows away in one commit and adds in another": (
        {"adds_with_removal": False},
        Cast((HOT_WRITER, FLUSHER)),
        "was to take",
    ),
    "a delete passes over hot rows": (
        {"deletes_hot": False},
        Cast((WRITER, DELETER), starts_hot=True),
        "which was to be without it",
    ),
    "united coverage is replaced by an older one": (
        {"keeps_newer_coverage": False},
        Cast((WRITER, UNITER, OTHER_UNITER)),
        "held",
    ),
    "united coverage that came too late is on no list": (
        {"leaves_late_coverage": False},
        Cast((WRITER, UNITER, OTHER_UNITER)),
        "nobody will ever collect",
    ),
    # leases beside a log
    "a reader of a log does not look again once its lease is there": (
        {"looks_again": False},
        Cast((DELETER, READER), log=True),
        "deleted",
    ),
    "a collector offers what was given up after a lease": (
        {"heeds_versions": False},
        Cast((DELETER, READER), log=True),
        "deleted",
    ),
    "a collector looks for leases before it reads the log": (
        {"reads_log_first": False},
        Cast((DELETER, READER), log=True),
        "deleted",
    ),
    # the queue of work
    "a piece of work is leased for ever when its last owner is gone": (
        {"buries_last": False},
        Cast((WRITER, WORKER, COWORKER), crashes=1, tries=1),
        "never over",
    ),
    "who had a piece that is dead may still commit": (
        {"fences_dead": False},
        Cast((WRITER, WORKER, COWORKER), tries=1),
        "after its lease was lost",
    ),
    "a piece that is revived has its old tokens again": (
        {"keeps_token": False},
        Cast((WRITER, WORKER, COWORKER), tries=1, revivals=1),
        "after its lease was lost",
    ),
    # letters
    "a letter is committed and then taken": (
        {"takes_before_commit": False, "rebases_itself": True},
        Cast((WRITER, ("b", "hot writer")), letters=True),
        "and it did",
    ),
    "a letter that is gone is taken for committed": (
        {"looks_for_taken": False, "rebases_itself": True},
        Cast((WRITER, OTHER), letters=True, crashes=1),
        "the acknowledged row",
    ),
    "who gives up and finds its letter gone says that it did not happen": (
        {"is_unsure_of_taken": False, "rebases_itself": True},
        Cast((WRITER, OTHER), letters=True),
        "and it did",
    ),
    # the collector
    "an inventory asks the catalog before it lists the store": (
        {"lists_store_first": False},
        Cast((WRITER, COLLECTOR)),
        "which is deleted",
    ),
    "an inventory asks for registrations last": (
        {"asks_pending_first": False},
        Cast((WRITER, COLLECTOR)),
        "which is deleted",
    ),
    "an inventory does not ask what snapshots hold": (
        {"asks_held": False},
        Cast((WRITER, COLLECTOR)),
        "which is deleted",
    ),
    "an inventory deletes in the folders of jobs": (
        {"heeds_folders": False},
        Cast((JOB, COLLECTOR)),
        "which is deleted",
    ),
    "what is named in a folder that was given up is deleted": (
        {"spares_named": False},
        Cast((JOB, COLLECTOR)),
        "which is deleted",
    ),
    "the registrations of the living are given up, and their commits pass": (
        {"spares_living": False, "checks_pending": False},
        Cast((WRITER, COLLECTOR)),
        "which is deleted",
    ),
    "nobody collects what lies in folders": (
        {"collects_below": False, "finds_orphans": False},
        Cast((JOB, COLLECTOR)),
        "no way to come to rest",
    ),
    "nobody looks for orphans": (
        {"finds_orphans": False},
        Cast((WRITER, COLLECTOR), abandons=1),
        "no way to come to rest",
    ),
}
