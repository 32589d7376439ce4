"""Passes over an imported network's Relax module that bring it into normal form."""
