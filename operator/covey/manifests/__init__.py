"""Manifests as a person hands them in: reading YAML and JSON, and checking them as the API server would."""
