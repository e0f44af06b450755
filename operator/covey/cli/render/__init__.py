"""Forms for people: table, tree, lines that follow what happens. Drawn from the report, deciding nothing."""
