"""Carrying out one job: from input SSTs to output SSTs."""
