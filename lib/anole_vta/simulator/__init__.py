"""Functional and timing simulators of the accelerator."""
