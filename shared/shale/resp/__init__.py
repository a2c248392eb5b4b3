"""The Redis protocol on a database: RESP2 and RESP3 on a port of its own (docs/resp.md)."""
