"""A model that writes, on its way to the phone: programs that read and that take a step, one file, the comparison."""
