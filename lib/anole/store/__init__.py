"""Where measurements are kept: append-only shards, one per run, and the database folded from them."""
