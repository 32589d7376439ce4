"""Devices of other machines, through TVM's RPC."""
