"""Timing of engines: in turns, in pairs until a verdict is certain, and under background load."""
