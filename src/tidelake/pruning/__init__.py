"""Knowing enough about rows to skip them: statistics, what a predicate can be by them, and the plan of a scan.

May import ``dynamic`` and below; it reads nothing. Its door is ``plan``; ``collector`` makes the statistics that
``outcomes`` judges for one run of rows and ``column_outcomes`` for many.
"""
