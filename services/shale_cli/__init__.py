"""The cli."""
