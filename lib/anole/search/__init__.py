"""The search methods: tuners that work on spaces and measurements, without TVM."""

PRESET_NAMES = ("random", "exhaustive", "autotvm", "release", "chameleon", "adatune", "dcoc", "anole")
"""The presets that `anole.search.presets` defines, for modules that must not import it."""

DEFAULT_PRESET = "anole"
"""The preset used when models.yaml names none."""
