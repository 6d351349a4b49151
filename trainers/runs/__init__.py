"""One run of a program: its arguments, its recipe and its folder."""
