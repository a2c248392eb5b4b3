"""Numbers that kernels share with their callers: words of states and tables, status codes."""
