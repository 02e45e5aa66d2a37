"""Compiled loops over bytes that Arrow has no kernel for, and what they fill: tokens and bloom filters.

May import ``model`` and below. Its doors are ``text_loops`` for whole columns, ``tokens`` and ``bloom`` for the rules.
"""
