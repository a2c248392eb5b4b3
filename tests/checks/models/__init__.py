"""Checks the models in schemas/models with TLC, the model checker of TLA+ (docs/concepts/models.md)."""
