"""Choice of the candidate domain and of the surplus: the best of all answers."""
