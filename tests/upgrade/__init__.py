"""Databases of earlier versions, and upgrades from one to another."""
