"""The compile stage: make builds, self-contained folders, from tuned tasks and their best known configs."""
