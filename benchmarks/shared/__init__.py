"""Builds on a machine that others share: neighbours, several networks, quotas, servers."""
