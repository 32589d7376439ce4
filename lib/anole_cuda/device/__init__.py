"""Builds and runs candidates on a GPU, and measures its peak."""
