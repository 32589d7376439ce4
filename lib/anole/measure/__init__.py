"""Measures candidates: builds and runs them in isolated processes."""
