"""JSON as rows, compiled: text is read once, cut into the values of its keys, and becomes Arrow columns.

May import what ``ingest`` may. Its door is ``columns``; ``plain_reader`` reads a few lines without compiling.
"""
