"""The front of a searched accelerator: what its designs cost in time, area and energy for several networks."""

FRONT = "front.csv"
"""The file in an accelerator's folder that holds its fronts."""
