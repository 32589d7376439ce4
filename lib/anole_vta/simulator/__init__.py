"""Simulators of the accelerator: a functional one and a timing one."""
