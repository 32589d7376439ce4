"""Import and export of records, from and for other machines."""
