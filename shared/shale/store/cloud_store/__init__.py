"""Cloud store."""
