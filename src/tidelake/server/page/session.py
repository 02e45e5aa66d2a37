"""Tell a page who is signed in, and how the lake is: ``GET /v1/session``, ``GET /v1/status``.

Signing in is asking for the session with a token in the header, as every request has it; a server sets no cookie, so no
other site can have a browser ask in somebody's name. It does not make tokens: see ``access``.
"""

from __future__ import annotations

from tidelake import __version__
from tidelake.server.call import Answer
from tidelake.server.credentials import token_of
from tidelake.server.doors.base import Asked, Door


async def answer_session(asked: Asked) -> Answer:
    """Answer with what the token allows; never with the token."""
    grant = asked.grant
    return Answer.json(
        {
            "name": grant.name,
            "is_anonymous": token_of(asked.call.headers) is None or not grant.id,
            "roles": [role for role in ("read", "write", "admin") if grant.allows(role)],
            "namespace": asked.call.namespace,
            "namespaces": list(grant.namespaces),
            "tables": list(grant.tables),
            "user": asked.user,
            "version": __version__,
        }
    )


async def answer_status(asked: Asked) -> Answer:
    """Answer with the health of the tables that the token reaches, and what upkeep is due."""
    status = await asked.questions.looked(asked.grant, lambda: asked.lake.status().to_pylist())
    return Answer.json({"tables": [row for row in status if asked.may_see(row["table"])]})


DOORS = (Door("/v1/session", answer_session, ("GET",)), Door("/v1/status", answer_status, ("GET",)))
