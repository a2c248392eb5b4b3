"""Runs the load, injects the faults, and ends everything."""
