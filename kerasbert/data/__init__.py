"""Sources -> documents -> packed examples -> records -> tf.data batches."""

from kerasbert.data.records import Records
from kerasbert.data.sources import read_documents, read_lines, read_table
from kerasbert.data.writer import write_records

__all__ = ["Records", "read_documents", "read_lines", "read_table", "write_records"]
