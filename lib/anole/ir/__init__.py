"""Helpers for TVM's Relax and TensorIR, shared by importers, passes and targets."""
