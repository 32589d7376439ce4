"""Builds for the VTA++ accelerator: a network of whole numbers and a library for the host beside it."""
