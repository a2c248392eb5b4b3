"""Adapters for programs written for other libraries: they run on Shale after changing an import."""
