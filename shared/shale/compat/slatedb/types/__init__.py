"""The values of the binding: enumerations, options and records."""
