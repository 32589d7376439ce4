"""Timing of engines: in turns, in pairs until a verdict is certain, under background load, and by kernel."""
