"""Whole design spaces of the accelerator, and how fast it is simulated."""
