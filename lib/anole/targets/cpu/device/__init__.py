"""Building and running candidates on the CPU; its peak and bandwidth."""
