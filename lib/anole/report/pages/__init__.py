"""The report: one self-contained HTML file, with a section for each question."""
