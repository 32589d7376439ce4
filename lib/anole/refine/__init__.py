"""The refine stage: select each task's config by timing its best candidates within the network."""
