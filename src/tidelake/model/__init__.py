"""What a table is and what is asked of it, as plain frozen values: schema, snapshot, predicate, times.

May import errors and ``runtime``; it does no input or output and knows no format, catalog or engine. Its doors are the
modules themselves, each named after its noun.
"""
