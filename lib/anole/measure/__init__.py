"""Measuring: builds and runs candidates in isolated processes."""
