"""Merges all shards and documents into the database, and imports the records of other databases."""
