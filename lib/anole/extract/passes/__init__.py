"""Passes that bring an imported network's Relax module into normal form."""
