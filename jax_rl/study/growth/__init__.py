"""What grows with the batch: published statements held against the runs of a study."""
