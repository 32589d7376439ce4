"""Passes over a network's Relax module on its way to kernels."""
