"""Each role with its policy, on a server that enforces policies."""
