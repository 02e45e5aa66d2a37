"""Say what a question is: a text, in a language, for whom, and which part of the lake it may see.

It does not ask: see ``questions``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tidelake.query.seen import Sight, View
from tidelake.query.session import Language
from tidelake.server.access import Grant
from tidelake.server.running import new_id


@dataclass(frozen=True, slots=True)
class Question:
    """A text, in which language, for whom."""

    text: str
    language: Language
    grant: Grant
    namespace: str
    user: str | None = None
    budget: Mapping[str, Any] = field(default_factory=dict)
    view: View = field(default_factory=View)
    door: str = ""
    id: str = field(default_factory=new_id)

    @property
    def sight(self) -> Sight:
        """What of the lake it may see."""
        return Sight(self.namespace, self.grant.may_reach)
