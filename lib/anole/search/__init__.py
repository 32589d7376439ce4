"""The search methods: tuners that work on spaces and measurements, without TVM."""

DEFAULT_PRESET = "anole"
"""The preset used when models.yaml names none."""
