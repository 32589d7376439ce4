"""The documents that stages leave for each other, and where each lies."""
