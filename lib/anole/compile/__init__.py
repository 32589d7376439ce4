"""Compilation: from tuned tasks to builds, self-contained folders with the best known configs."""
