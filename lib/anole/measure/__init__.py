"""Measuring: candidates built and run in processes of their own, and where they run."""
