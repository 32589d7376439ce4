"""The simulated accelerator: what a program computes, and when."""
