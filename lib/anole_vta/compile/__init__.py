"""Compile for the VTA++ accelerator: an integer network, and a library for the host."""
