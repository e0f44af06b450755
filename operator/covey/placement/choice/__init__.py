"""Which candidate domain, and how much surplus: the best of all answers."""
