"""Remote devices, through TVM's RPC."""
