"""Other people's checkouts: their trainers with training-time terms, recorded and tried out."""
