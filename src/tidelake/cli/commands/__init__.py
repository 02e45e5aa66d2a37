"""Hold the commands, a module for each kind: each command is a few lines over one library call.

They are found by name through ``cli.COMMANDS``. It does not hold what commands share: see ``options``.
"""
