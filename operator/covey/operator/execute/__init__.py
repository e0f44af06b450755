"""Does what a plan says, and decides nothing."""
