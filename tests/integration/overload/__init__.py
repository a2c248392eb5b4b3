"""A writer under 2,000 idle and 500 hostile connections, beside 50 honest clients (``make overload-check``)."""
