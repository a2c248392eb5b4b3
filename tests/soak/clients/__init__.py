"""Clients of all interfaces: they choose operations at random and record what came of them."""
