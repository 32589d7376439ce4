"""Schedules of the accelerator and the programs they become."""
