"""The data ports of a daemon that serves one open database: HTTP and RESP."""
