"""How fast compiled networks are beside other engines."""
