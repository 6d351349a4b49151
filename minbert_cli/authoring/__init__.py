"""Write, find and check recipes."""
