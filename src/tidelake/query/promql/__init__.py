"""Answer questions in PromQL about tables of samples: a text to selectors, selectors to scans, samples to arrays.

A value of a query is an array of (series, steps), and every function is an operation on such arrays. May import
``handle``, ``scan`` and below, and of ``query`` the budget. Its door is ``asking``.
"""
