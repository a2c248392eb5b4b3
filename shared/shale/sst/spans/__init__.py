"""Neighbouring blocks of an SST, as sources read them: past the cache or through it, and in parts."""
