"""The warm standby of a writer: it watches the active writer, and replaces it."""
