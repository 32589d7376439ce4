"""How candidates are built and run on a GPU, and what it can do at most."""
