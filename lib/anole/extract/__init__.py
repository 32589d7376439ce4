"""The extract stage: finds the tasks of a model."""
