"""`anole explore`: the database as a site on this machine, by Datasette."""
