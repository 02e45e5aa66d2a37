"""Turn KQL text into a tree that both engines run.

``parse`` gives the syntax, ``lower`` the tree with every name resolved. Both raise a QueryError that shows the place.
It does not read tables, plan scans or run anything.
"""

from tidelake.query.kql.lowering import Lowered, Render, lower
from tidelake.query.kql.parser import parse
from tidelake.query.kql.syntax import Script

__all__ = ["Lowered", "Render", "Script", "lower", "parse"]
