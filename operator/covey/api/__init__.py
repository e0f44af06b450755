"""The API: models of every kind Covey serves, the CRDs made from them, and the names that pass through the server."""
