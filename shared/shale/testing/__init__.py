"""Simulation, fake stores, models and invariants for tests; ``simulation`` shows how to write a test."""
