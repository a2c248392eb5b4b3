"""Discrete simulation of a compaction policy with a workload on one tree; pure and deterministic for a seed."""
