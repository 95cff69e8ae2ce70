"""Step 2: one parser for each kind of text; each is fed Lines and yields evidence."""
