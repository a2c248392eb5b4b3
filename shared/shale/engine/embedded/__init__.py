"""The compactor and the collector that run in the process of a writer."""
