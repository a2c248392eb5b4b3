"""The memory of a daemon: its limit, the sizes that follow from it, and the watch that keeps to it."""
