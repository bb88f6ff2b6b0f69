"""One store, local or gs://: `files` that appear whole, `remote` for single ones anywhere, `folders` for those of a run."""
