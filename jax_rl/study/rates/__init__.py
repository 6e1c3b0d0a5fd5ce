"""Learning rates: trials, what they choose, and what moving the rate does."""
