"""Shards: the append-only files that hold every measurement, one file per run."""
