"""Relax passes that normalize an imported network."""
