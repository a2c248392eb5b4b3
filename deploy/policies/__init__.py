"""The rights of each role in an object store, as one table, and the policies that are made from it."""
