"""From a model to its tasks."""
