"""The ``cuda`` target: NVIDIA GPUs."""
