"""Proof without a TPU: lower the real train step, refuse what a TPU cannot run, compile it for a topology that is not here."""
