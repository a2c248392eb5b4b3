"""A mutation run: change one operation of a function at a time, and see whether a test fails.

``python -m tests.mutation run PACKAGE...`` writes what it finds below ``.shale/mutation``; ``report`` judges it.
"""
