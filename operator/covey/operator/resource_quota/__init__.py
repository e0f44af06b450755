"""ResourceQuotas: charges of pods, and the pods that fit, before the first is created."""
