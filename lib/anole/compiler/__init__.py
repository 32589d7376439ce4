"""The compile stage: make builds, which are self-contained folders, from tasks and their best known configs."""
