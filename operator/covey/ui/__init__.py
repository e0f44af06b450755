"""``covey ui``: one page with the cluster's topology, what waits and why, stories and plans; read with the viewer's rights."""
