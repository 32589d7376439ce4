"""This machine: its processor, its cores, and the facts about it that records store."""
