"""Whether a database is whole: what its metadata say, what they refer to, and what nobody refers to."""
