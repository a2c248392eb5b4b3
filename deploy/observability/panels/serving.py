"""What clients see: the network interface, the Redis port, calls of the database."""

from .panel import Panel, Row, heatmap, one
from .queries import CALL, COMMAND, COMMIT, quantiles, rate

HTTP = Row(
    "HTTP",
    (
        one("Requests", "By route.", "reqps", "{{db}} {{route}}", rate("shale_http_requests_total", "db, route")),
        one(
            "Errors",
            "ShaleHTTPErrors: 5xx.",
            "reqps",
            "{{db}} {{route}}",
            rate("shale_http_requests_total", "db, route", ', status="5xx"'),
        ),
        Panel(
            "Time of an answer",
            "To its end: a scan takes as long as it is read.",
            "s",
            quantiles("shale_http_request_duration_seconds", "route"),
        ),
        one(
            "Admin calls",
            "Calls that change something, by how they ended; the audit log has each of them.",
            "ops",
            "{{db}} {{outcome}}",
            rate("shale_admin_calls_total", "db, outcome"),
        ),
        one(
            "Quota refusals",
            "Requests and commands over the quota of their token, by the role of the quota.",
            "ops",
            "{{db}} {{role}}",
            rate("shale_quota_refusals_total", "db, role"),
        ),
        one(
            "Refused for failed authentication",
            "Requests and AUTH commands without a valid token, above `auth.failures_per_minute` of their address.",
            "ops",
            "{{db}} {{instance}}",
            rate("shale_auth_refusals_total", "db, instance"),
        ),
        one(
            "Admin calls over their limit",
            "Calls of the admin port that `admin.requests_per_second` has refused, by the role of the token.",
            "ops",
            "{{db}} {{role}}",
            rate("shale_admin_quota_refusals_total", "db, role"),
        ),
        one(
            "Refused",
            "Malformed requests, and connections beyond a limit, by status.",
            "reqps",
            "{{db}} {{status}}",
            rate("shale_http_refusals_total", "db, status"),
        ),
        one(
            "In flight",
            "`http.max_concurrent_requests` is the limit.",
            "short",
            "{{db}} {{instance}}",
            "topk(12, shale_http_requests_inflight{$all})",
        ),
    ),
)

RESP = Row(
    "The Redis port",
    (
        one("Commands", "By name.", "ops", "{{db}} {{command}}", rate("shale_resp_commands_total", "db, command")),
        one(
            "Refused commands",
            "ShaleRESPErrors.",
            "ops",
            "{{db}} {{command}}",
            rate("shale_resp_errors_total", "db, command"),
        ),
        one(
            "Failed commands",
            "Through no fault of the client.",
            "ops",
            "{{db}} {{command}}",
            rate("shale_resp_failures_total", "db, command"),
        ),
        Panel(
            "Time to the reply",
            "From the arrival of commands; the same for commands that are sent together.",
            "s",
            quantiles(COMMAND, "category"),
        ),
        heatmap("Reads", "Where the time of reads lies; 0.1 s is the objective.", COMMAND, ', category="read"'),
        heatmap("Writes", "Where the time of writes lies; 0.5 s is the objective.", COMMAND, ', category="write"'),
        one(
            "Open connections",
            "`resp.max_connections` is the limit.",
            "short",
            "{{db}} {{instance}}",
            "topk(12, shale_resp_connections_open{$all})",
        ),
        one(
            "New connections",
            "ShaleRESPConnectionsRefused.",
            "ops",
            "{{db}} {{result}}",
            rate("shale_resp_connections_total", "db, result"),
        ),
        one(
            "Bytes", "Read and written.", "Bps", "{{db}} {{direction}}", rate("shale_resp_bytes_total", "db, direction")
        ),
        one(
            "Waiting",
            "Bytes of commands that have not run yet.",
            "bytes",
            "{{db}} {{instance}}",
            "topk(12, shale_resp_inflight_bytes{$all})",
        ),
        one("Protocol errors", "What is no command.", "ops", "{{db}}", rate("shale_resp_protocol_errors_total", "db")),
    ),
)

CALLS = Row(
    "Calls of the database",
    (
        one("Rate", "By operation.", "ops", "{{db}} {{op}}", rate("slatedb_db_requests_total", "db, op")),
        Panel("Duration", "From call to result.", "s", quantiles(CALL, "op")),
        Panel(
            "Durable commit",
            "From accepting a write to its durability; 0.5 s is the objective.",
            "s",
            quantiles(COMMIT, "db"),
            threshold=0.5,
        ),
    ),
)
