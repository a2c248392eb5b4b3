"""Signals, task hosts, bounded gathering, and blocking twins of asynchronous classes."""
