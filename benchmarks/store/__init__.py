"""How the database, the report and plans grow with a project."""
