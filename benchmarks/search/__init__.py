"""Which search method wins where, and which of the papers' claims hold."""
