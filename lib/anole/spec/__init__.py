"""models.yaml as frozen dataclasses."""
