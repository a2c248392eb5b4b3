"""Clients that public generators make of a writer's OpenAPI document."""
