"""This machine: its processor, its cores, and what records say of it."""
