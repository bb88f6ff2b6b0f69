"""Sources -> documents -> packed examples -> records -> tf.data batches. Importing it imports nothing heavy."""

from kerasbert import lazy

_HOMES = {
    "Records": "records",
    "read_documents": "sources",
    "read_lines": "sources",
    "read_table": "sources",
    "write_records": "writer",
}
__getattr__, __dir__, __all__ = lazy.public(__name__, _HOMES)
