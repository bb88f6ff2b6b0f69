"""Strategies, the step core, the trainer and what a run writes."""
