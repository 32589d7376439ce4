"""The local machine: CPU, cores, software and hardware facts; isolated processes, device locks, temporary folders."""
