"""The extract stage: import a model, and find its tasks."""
