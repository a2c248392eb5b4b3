"""Simulation and fakes for tests; see ``simulation`` for how to write one."""
