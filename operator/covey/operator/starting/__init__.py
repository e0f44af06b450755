"""Who may start: pods that the operator lets go itself, and the order between roles."""
