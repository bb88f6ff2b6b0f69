"""What came before Transformers: word vectors, recurrent language models, encoders of sentences. Nothing in the core imports it.

Each paper is a file, as in `models/`; its layers, objectives and formats stand here too. The registry's tables name this package
beside those of the core, as they would a plug-in's.
"""
