"""Who goes where, once it is known that all fit: targets shared out from a domain to its nodes, at the least price."""
