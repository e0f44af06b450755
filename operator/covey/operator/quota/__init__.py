"""ResourceQuotas: what pods are charged, and which of them fit before the first is created."""
