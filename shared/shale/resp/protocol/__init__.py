"""The protocol of Redis: parsing of commands and encoding of replies, without I/O."""
