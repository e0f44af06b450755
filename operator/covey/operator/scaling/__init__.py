"""Other numbers of replicas: who asks for them, who stands for a unit, and how replicas go without dropping requests."""
