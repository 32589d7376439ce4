"""Shards: append-only files that hold all measurements, one file per run."""
