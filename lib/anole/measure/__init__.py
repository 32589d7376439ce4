"""Measures candidates: builders build them, a bench runs them, and a measurer orders both and tells what came of it."""
