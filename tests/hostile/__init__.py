"""Damaged and hostile files: seeded mutations of a good file or folder, each opened as a user's would be.

A process of its own opens them (`worker.py`), so that a signal or a hang is counted and not suffered. What comes of one:

    same, near    the answer of the good file (numbers within 1e-3), or of another that is right as well
    other         another answer: what no hash can tell, such as another piece in a vocab.txt
    error         an InputError of one line
    traceback, nan, signal, hang    never: a test fails, and prints the case and its seed

Files or folders outside of the case that are written or deleted fail the test too.

Run a slice (a minute), or all of it (3,000 .tflite, 500 of every other format; a quarter of an hour), with its tables:

    pytest -n 0 -m slow tests/hostile -s
    pytest -n 0 -m full tests/hostile -s

Add a format:

1. `subjects.py`: a function path -> json answer that opens it as the product does, and a row in IMPORTS.
2. A test that makes the good folder and calls `fuzz.run(worker, subject, good, mutations.folders(good, files, count))`;
   a row in FORMATS of `test_folders.py` where a folder of a few files is all that it needs.
3. `tensorflow_worker` where the subject loads TensorFlow, whose threads do not survive a fork; else `worker`.
4. Where the product keeps a hash: name these files in `check(..., hashed=...)`, which allows no "other" there. Then make the
   hash anew in half of the cases (`after=`), or the hash hides the parser from the fuzzer.
"""
