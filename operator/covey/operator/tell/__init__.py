"""Reports: the status and its conditions, Events that follow from it, gauges and times of lives."""
