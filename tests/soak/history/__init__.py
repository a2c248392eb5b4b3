"""What clients did and what came of it: operations, as lines of JSON."""
