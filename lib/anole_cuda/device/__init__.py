"""Building and running candidates on a GPU; its properties and its peak."""
