"""What is needed to work on a lake and on a table of it, as frozen values that every room above passes on.

May import ``coverage``, ``scan``, ``catalog`` and below. Its doors are ``LakeHandle``, ``TableHandle`` and
``open_lake``; ``Lake`` and ``Table`` are nouns over them. A lake's handle imports no engine, a table's does.
"""
