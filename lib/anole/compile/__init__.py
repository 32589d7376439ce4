"""The compile stage: makes builds, self-contained folders, from tuned tasks and their best known configs."""
