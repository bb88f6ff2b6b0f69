"""Text problems: rows, head, metric and answers. `kb.load`, `kb.predict`, `kb.encode` live here."""
