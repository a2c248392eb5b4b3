"""What ``make gen-schemas`` writes from ``schemas/``, and the table class that it uses."""
