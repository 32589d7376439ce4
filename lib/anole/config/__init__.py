"""Reads models.yaml into frozen dataclasses."""
