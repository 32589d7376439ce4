"""The search methods, which see spaces and measurements and nothing of TVM."""

DEFAULT_PRESET = "anole"
"""The preset of a models.yaml that names none."""
