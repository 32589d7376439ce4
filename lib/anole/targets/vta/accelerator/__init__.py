"""The front of a searched accelerator: what its designs cost in time, area and energy for several networks."""
