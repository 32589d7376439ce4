"""Declarative auto-tuning of deep networks."""
