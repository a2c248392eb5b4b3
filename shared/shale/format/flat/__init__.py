"""FlatBuffers: the verifier, and helpers around the generated builders and accessors."""
