"""Output for people: reports, profiles, comparisons and the outputs of builds."""
