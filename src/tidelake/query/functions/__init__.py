"""Functions that mean the same on both engines: a module for each family, in which each function is declared once.

``declaration`` says what a declaration is, ``templates`` and ``macros`` how SQL is written, ``python`` how Python runs.
Its doors are ``registry``, which holds all functions, and ``rendering``, which writes a tree as SQL.
"""
