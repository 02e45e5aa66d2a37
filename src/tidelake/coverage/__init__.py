"""Which time windows are held for which entity, and which are missing.

May import ``scan``, ``catalog`` and below. The mathematics (``buckets``, ``bitmaps``, ``entities``, ``schedule``) knows
no storage; ``coverage_store`` finds what a snapshot covers, ``recorder`` judges what a commit adds, ``repair`` makes
lost sidecars again, and ``verbs`` is the door that users hold as ``table.coverage``.
"""
