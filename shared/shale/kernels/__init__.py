"""Loops over arrays and addresses, compiled by numba, and the columns of rows that they work on."""
