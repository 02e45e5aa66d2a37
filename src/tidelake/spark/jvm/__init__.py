"""All our Java, and how it gets into a Spark driver: compiled there, tried, and installed.

Its doors are ``optimizer`` and ``planning``.
"""
