"""The stage that merges: every shard and document folded into the database, from which records can be exchanged."""
