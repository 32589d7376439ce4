"""Passes that lower a network's Relax module to kernels."""
