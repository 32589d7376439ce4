"""The typed JSON documents that stages exchange, and their paths."""
