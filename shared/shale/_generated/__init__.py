"""flatc's output (``make gen``), never edited by hand."""
