"""Whole networks on the accelerator."""
