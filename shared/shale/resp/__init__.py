"""A Redis-compatible server on a database: RESP2 and RESP3 on a separate port (docs/reference/resp.md)."""
