"""How sure a verdict is, and how often the analysis is right."""
