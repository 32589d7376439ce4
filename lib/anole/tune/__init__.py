"""The stage that tunes tasks."""
