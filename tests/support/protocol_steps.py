"""Give each named step of the engine its place in the protocol's model.

A step that has none fails a test, so whoever names a new one says here where the model has it, or why it needs no place
there. It does not describe the steps.
"""

from __future__ import annotations

# What has just been done in the model, or is about to be, when the engine is at a step.
STEPS = {
    "coordinator.head": "rebases onto",
    "coordinator.commit": "commits",
    "coordinator.unknown": "commits and gets no answer:",
    "commit.begin": "commits",
    "commit.swapped": "commits",
    "commit.appended": "commits",
    "commit.end": "commits",
    "extent.registered": "plans at snapshot",
    "extent.begun": "writes",
    "extent.written": "writes",
    "rewrite.read": "plans at snapshot",
    "rewrite.written": "reads and writes",
    "rewrite.committed": "acknowledges snapshot",
    "flush.listed": "plans at snapshot",
    "flush.written": "reads and writes",
    "flush.committed": "acknowledges snapshot",
    "work.claimed": "leases the work with token",
    "work.done": "completes the work",
    "turn.waiting": "posts a letter:",
    "letter.posted": "posts a letter:",
    "letter.gone": "finds its letter committed:",
    "letters.taken": "takes letters:",
    "collect.listed": "lists the store",
    "collect.abandoned": "gives up registrations",
    "collect.page": "takes a page of garbage",
    "collect.deleted": "deletes the page",
    "collect.forgotten": "forgets the page",
    "collect.named": "asks for names:",
    "collect.orphans": "deletes orphans",
}

_ONE = "inside of one transaction, which is one step of the model; a crash in it is a crash before or after"
_COPY = "about a copy of what the catalog has, made after a commit: no reader believes it unless the catalog agrees"
_ENTRY = "part of writing one entry of the log, which is one step of the model: the entry is there or not"
_COPY = "a copy of what the catalog says, which a reader holds against the head before it believes it"
_INDEX = "an index of vectors is a setting and objects that can be made again: without them a search reads all rows"
_SYNC = "a sync commits by an append with an offset, which is one step of the model; it is killed in its own suite"
WITHOUT_PLACE = {
    "manifest.looked": _COPY,
    "manifest.noted": _COPY,
    "manifest.read": _COPY,
    "manifest.sealed": _COPY,
    "manifest.synced": _COPY,
    "manifest.written": _COPY,
    "transaction.begun": _ONE,
    "transaction.written": _ONE,
    "transaction.committed": "an answer that is lost in a crash: the model crashes after every commit",
    "log.begin": _ENTRY,
    "log.published": _ENTRY,
    "log.followed": _ENTRY,
    "log.pointed": "a hint where the log ends, which nobody relies on",
    "log.end": _ENTRY,
    "extent.covered": "coverage is one more object of the same registration as its extent",
    "extent.coded": "codes of vectors are one more object of the same registration as their extent",
    "index.named": _INDEX,
    "index.renewed": _INDEX,
    "index.sidecar": _INDEX,
    "sync.read": _SYNC,
    "sync.copied": _SYNC,
    "sync.committed": _SYNC,
    "sync.acknowledged": _SYNC,
    "collect.purged": "a dropped table is no table that the model has; its objects go the way of what expires",
    "collect.unfinished": "temporary files of dead writers have names that no commit can have",
    "collect.folders": "an empty folder holds no object",
    **dict.fromkeys((f"manifest.{step}" for step in ("read", "looked", "sealed", "written", "noted", "synced")), _COPY),
}
