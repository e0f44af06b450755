"""Why there is no place, in the words of people, and the proof of it."""
