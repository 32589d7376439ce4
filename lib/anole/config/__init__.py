"""Parse and check models.yaml into frozen dataclasses."""
