"""Programs written for other libraries run on Shale by changing an import."""
