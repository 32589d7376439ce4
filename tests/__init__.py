"""The tests, which mirror `lib/anole`. This file keeps a `tests` package installed by others from being imported."""
