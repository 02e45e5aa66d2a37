"""Bring rows from other databases and programs: kept in step (sync), read in place (attach), or fetched (pull).

A source says what it has and what changed; ``runner`` commits that to tables of the lake, with how far it is in the
same commit. It may import what writes and reads tables, and nothing that asks questions. Its doors are ``sources`` for
those who define and run sources, ``latest`` for what a synced table holds now, and ``listing`` for ``system.sources``.
"""
