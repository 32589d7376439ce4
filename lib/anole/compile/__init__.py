"""From tuned tasks to builds: a network compiled with the best configs known, as a folder that stands alone."""
