"""The typed documents that stages exchange, and their paths."""
