"""The tests, which mirror `lib/anole`. Some packages install one of this name, which must not stand in its place."""
