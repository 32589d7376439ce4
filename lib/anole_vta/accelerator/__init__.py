"""Pareto fronts of accelerator designs over time, area and energy, for one network or several."""

FRONT = "front.csv"
"""The file in an accelerator's folder with its Pareto fronts."""
