"""One question to the capacity tables: what a gang still lacks, under which levels, and what is fixed already."""
