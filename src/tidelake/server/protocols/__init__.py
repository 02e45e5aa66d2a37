"""The protocols that a server speaks, each a module with its routes.

To add one, write a module with a tuple ``ROUTES`` of ``server.call.Route``, whose decoders turn a request's body into
rows of tables and whose answers are worded as its clients expect, and name it in ``PROTOCOLS``. They may import what
turns bytes into rows, and nothing that knows the network.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidelake.server.call import Route
from tidelake.server.protocols import elastic, hec, influx, loki, otlp, remote_write, rows

PROTOCOLS: Mapping[str, Sequence[Route]] = {
    "rows": rows.ROUTES,
    "otlp": otlp.ROUTES,
    "prometheus": remote_write.ROUTES,
    "loki": loki.ROUTES,
    "hec": hec.ROUTES,
    "influx": influx.ROUTES,
    "elastic": elastic.ROUTES,
}
