"""SQL in Spark's dialect: read, kept to what is allowed, and given one meaning on both engines.

Its door is ``parse``.
"""
