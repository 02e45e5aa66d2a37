"""Name the doors that only a page needs. It does not answer at them: each module has its own."""

from __future__ import annotations

from tidelake.server.page import completing, documents, session

PAGE_DOORS = (*session.DOORS, *completing.DOORS, *documents.DOORS)
