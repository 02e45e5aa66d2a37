"""Functions that mean the same on both engines, a module for each family.

Its door is ``registry``.
"""
