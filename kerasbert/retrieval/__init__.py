"""Search among many texts by their vectors: a file of vectors, and an index that keeps texts and vectors in a folder."""
