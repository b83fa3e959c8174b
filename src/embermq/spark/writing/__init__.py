"""Writing a DataFrame or a stream into a store, each batch once: staged files, a journal, commits."""
