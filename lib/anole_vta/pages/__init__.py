"""Sections of the report about accelerators."""
