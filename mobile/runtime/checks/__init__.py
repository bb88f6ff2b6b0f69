"""What of a file is looked at before it is run, beside what the flatbuffer's own verifier sees."""
