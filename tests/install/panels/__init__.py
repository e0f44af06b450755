"""The Grafana dashboard against a real Prometheus: a run that gives every panel something to show."""
