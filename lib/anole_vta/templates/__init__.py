"""Design spaces and schedules for the accelerator, and their lowering to programs."""
