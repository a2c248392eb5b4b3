"""Follow the WAL: every change of a database once, in order, from an offset that can be stored and resumed."""
