"""Timing of engines: interleaved, in pairs until the verdict is clear, under background load, and by kernel."""
