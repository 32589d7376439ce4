"""Common parts of the templates of several targets."""
