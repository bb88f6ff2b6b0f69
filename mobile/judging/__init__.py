"""What a file is worth beside its model, and whether that is enough to write it."""
