"""The report: one HTML file that needs nothing else, with a section for each question that its readers have."""
