"""What follows for whoever has to choose: batches, cost, other hardware."""
