"""The one process that plans compactions, hands them out and commits their results."""
