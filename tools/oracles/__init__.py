"""Ask questions that others published with their answers, and compare: ``python -m tools.oracles``.

The questions lie outside the project and stay there. It does not judge who is right: what differs is written to a file
with both answers, for a person to read.
"""
