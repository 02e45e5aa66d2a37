"""List the questions that run, and stop one.

A token sees its own, and an admin all of them. It does not start any: see ``rows``.
"""

from __future__ import annotations

import time
from functools import partial

from tidelake.model.times import time_text
from tidelake.server.call import Answer
from tidelake.server.doors.base import About, Asked, Door


async def answer_queries(asked: Asked) -> Answer:
    """Answer with the questions that run."""
    found = await asked.questions.looked(asked.grant, partial(asked.questions.running.seen_by, asked.grant))
    return Answer.json(
        {
            "queries": [
                {
                    "id": each.id,
                    "text": each.text,
                    "language": each.language,
                    "door": each.door,
                    "who": each.name,
                    "since": time_text(int(each.began_s * 1e6) * 1000),
                    "seconds": round(time.time() - each.began_s, 3),
                    "bytes": each.read_bytes,
                    "sent_bytes": each.sent_bytes,
                }
                for each in found
            ]
        }
    )


async def answer_stop(asked: Asked) -> Answer:
    """Stop a question; its client is told so."""
    stop = partial(asked.questions.running.stop, asked.call.path["id"], asked.grant)
    return Answer.json({"stopped": await asked.questions.looked(asked.grant, stop)})


DOORS = (
    Door("/v1/queries", answer_queries, ("GET",), about=About("The questions that run.")),
    Door("/v1/queries/{id}", answer_stop, ("DELETE",), about=About("Stop a question.")),
)
