"""One module per question that a report answers."""
