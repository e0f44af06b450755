"""The start of pods: those that the operator lets go itself, and the order between roles."""
