"""Runners of candidates: on a local device, or on remote servers."""
