"""Schedules for the accelerator, and their lowering to programs."""
