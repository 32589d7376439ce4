"""Builds and runs candidates on the CPU, and measures its peak and bandwidth."""
