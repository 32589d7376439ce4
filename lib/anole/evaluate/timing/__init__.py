"""Times engines: in turns, in pairs until a verdict is certain, and beside busy neighbours."""
