"""How candidates are built and run on the CPU, and what it can do at most."""
