"""Changes of replica numbers: autoscalers that ask for them, the pod that stands for a unit, graceful removal."""
