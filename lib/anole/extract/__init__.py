"""Extraction: from a model to its tasks."""
