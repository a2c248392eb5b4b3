"""The network interface on one open database, for every daemon that serves one."""
