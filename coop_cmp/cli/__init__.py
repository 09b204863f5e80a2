"""The commands on top: a sweep with its table, the protocols, the search for lambda, the tables."""
