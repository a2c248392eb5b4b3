"""Execution of one job: from input SSTs to output SSTs."""
