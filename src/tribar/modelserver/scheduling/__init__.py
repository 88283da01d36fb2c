"""How requests of one model version reach its instances: dynamic batches here, sequences and ensembles beside it."""
