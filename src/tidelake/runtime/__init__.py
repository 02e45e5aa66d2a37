"""What the interpreter and the machine need from us: deferred imports, compiled loops, processes that fork.

May import nothing but errors. Its doors are ``deferred``, ``compiling`` and ``forking``.
"""
