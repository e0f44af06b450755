"""The process around the reconcile: its flags, its lease, its caches and kopf."""
