"""Chooses between the best candidates of each task by timing them within the whole network."""
