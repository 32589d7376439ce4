"""Entire networks on the accelerator: integer layers, host calls and saved builds."""
