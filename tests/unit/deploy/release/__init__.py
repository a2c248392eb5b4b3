"""The release: packages, components, provenance, images."""
