"""The help of the programs with recipes."""
