"""Help pages, completion, and the generated references of commands and settings."""
