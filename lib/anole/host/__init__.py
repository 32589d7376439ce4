"""This machine: its processor, its cores, and the facts that records keep of it."""
