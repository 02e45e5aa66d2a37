"""Keep a lake small and right: take rows away, swap them, bring older states back, compact, expire, collect.

Everything that changes a table here is one commit that takes extents and hot batches away and adds others; everything
that takes time can be a unit of work for any process. May import ``write`` and what is below it. Its doors are one
module for each verb: ``delete``, ``restore``, ``compact``, ``collect`` and so on.
"""
