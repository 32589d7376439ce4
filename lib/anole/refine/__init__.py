"""The choice between the best candidates of each task within the whole network."""
