"""Which pods take requests, and which of them may be paired."""
