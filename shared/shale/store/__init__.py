"""The object-store port, its adapters, and the wrappers that retry and measure requests."""
