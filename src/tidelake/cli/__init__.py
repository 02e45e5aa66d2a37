"""The command line: commands, the shell, output for people and machines, the demonstration.

May import everything; nothing imports it. Its door is ``main``.
"""
