"""This machine: processor, cores, software and hardware facts; isolated processes, device locks, temporary folders."""
