"""What the rooms share: files of CSV, tables, arguments and the builds that are measured."""
