"""The clients of the check, and the history of their writes."""
