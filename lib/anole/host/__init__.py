"""This machine: its processor, cores and facts; the processes that Anole isolates on it, and its locks."""
