"""NVIDIA GPUs as a target."""
