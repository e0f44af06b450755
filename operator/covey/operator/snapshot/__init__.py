"""The snapshot that one reconcile decides from: the resource's own objects, read and sorted, at one time."""
