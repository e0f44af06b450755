"""Objects other than pods, kept as they should be: applied when they drifted, remade, marked, removed."""
