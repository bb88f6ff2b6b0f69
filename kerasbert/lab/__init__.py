"""What the papers claim, seen at small scale: `kerasbert lab`. A recipe in `recipes/` is an experiment."""
