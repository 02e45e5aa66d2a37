"""The page: what a person sees at ``/`` of a server.

``source/`` has what is written, ``assets/`` what ``tools/page_bundle.py`` makes of it: one script, one style sheet and
one document, which ``serving`` sends. The page asks the same doors as every other client; the few that only a page
needs are here: who is signed in and how the lake is (``session``), words to complete (``completing``), and documents
that are kept in the lake (``documents``). It may import what ``server`` may.
"""
