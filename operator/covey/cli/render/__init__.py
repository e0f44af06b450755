"""Forms for people: table, tree, the picture of the floor, SVG. Drawn from the report, deciding nothing."""
