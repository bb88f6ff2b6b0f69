"""The portable core in C (see README.md); `build.py` compiles it, `mobile.runtime.native` uses it."""
