"""Reading, building, caching and verifying SSTs."""
