"""The extract stage: find the tasks of a model."""
