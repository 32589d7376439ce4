"""`anole explore`: the database as a local web site, served by Datasette."""
