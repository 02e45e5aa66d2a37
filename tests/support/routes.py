"""Name every address of a server, with the role that a token needs for it.

This is the agreed table, written by hand: a test compares it with what a server really answers. It does not look at the
code for what is right.
"""

from __future__ import annotations

TABLE = """
any    GET           /
any    GET           /page/{name}
any    GET           /healthz
any    GET           /readyz
any    GET,HEAD      /-/healthy
any    GET,HEAD      /-/ready
admin  GET           /metrics
any    GET           /v1/openapi.json

read   GET,POST      /v1/query
read   GET,POST      /v1/explain
read   GET           /v1/queries
read   DELETE        /v1/queries/{id}
read   GET           /v1/tables
read   GET           /v1/tables/{table}
read   GET           /v1/tables/{table}/history
read   GET           /v1/tables/{table}/drift
read   GET           /v1/tables/{table}/extents
read   GET           /v1/tables/{table}/fields
read   GET,POST      /v1/coverage/{table}
read   GET           /v1/tail
read   GET,POST      /v2/rest/query
read   GET,POST      /v1/rest/query
read   POST          /v1/rest/mgmt
write  POST          /v1/rest/ingest/{database}/{table}
any    GET           /v1/rest/auth/metadata
read   GET,POST      /api/v1/query
read   GET,POST      /api/v1/query_range
read   GET,POST      /api/v1/series
read   GET,POST      /api/v1/labels
read   GET           /api/v1/label/{name}/values
read   GET           /api/v1/metadata
read   GET           /api/v1/status/buildinfo
read   GET,POST      /api/v1/format_query
read   POST          /api/v1/read
read   GET           /api/v1/rules
read   GET           /api/v1/alerts
read   GET           /api/v1/targets
read   GET,POST      /api/v1/query_exemplars
read   GET,POST      /api/v1/alertmanagers
read   GET           /api/v1/status/flags
read   GET           /api/v1/status/config
read   GET           /api/v1/status/runtimeinfo
read   GET           /v1/session
read   GET           /v1/status
read   POST          /v1/complete
read   GET           /v1/documents/{kind}
read   GET           /v1/documents/{kind}/{name}/revisions
read   GET           /v1/documents/{kind}/{name}
write  PUT           /v1/documents/{kind}/{name}
write  DELETE        /v1/documents/{kind}/{name}

write  POST,PUT      /v1/ingest/{table}
write  POST          /v1/logs
write  POST          /v1/traces
write  POST          /v1/metrics
write  POST          /api/v1/write
write  POST          /loki/api/v1/push
write  POST          /api/prom/push
write  POST          /services/collector
write  POST          /services/collector/event
write  POST          /services/collector/event/1.0
write  POST          /services/collector/raw
write  POST          /services/collector/raw/1.0
write  POST          /services/collector/ack
any    GET           /services/collector/health
any    GET           /services/collector/health/1.0
write  POST          /write
write  POST          /api/v2/write
write  POST          /api/v3/write_lp
any    GET           /ping
write  POST,PUT      /_bulk
write  POST,PUT      /{index}/_bulk
write  POST,PUT      /{index}/_doc
write  POST,PUT      /{index}/_doc/{id}
write  POST,PUT      /{index}/_create/{id}
write  GET           /
write  GET           /_license
write  GET           /_xpack
write  GET           /_cluster/health
write  GET           /_nodes
write  GET           /_nodes/http
write  GET           /_nodes/_all/http
write  GET           /_nodes/_local
write  GET,POST,PUT  /_ilm/policy/{name}
write  GET,POST,PUT  /_index_template/{name}
write  GET,POST,PUT  /_component_template/{name}
write  GET,POST,PUT  /_template/{name}
write  GET,POST,PUT  /_ingest/pipeline/{name}
write  GET,POST,PUT  /_data_stream/{name}
write  GET,POST,PUT  /_alias/{name}
"""


def agreed() -> set[tuple[str, str, str]]:
    """Return role (none for anybody), method and path of every route; the page at ``/`` is for who asks for HTML."""
    lines = [line.replace("GET", "GET,HEAD").split() for line in TABLE.splitlines() if line]
    return {
        ("" if role == "any" else role, method, path) for role, methods, path in lines for method in methods.split(",")
    }
