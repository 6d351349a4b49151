"""Files of rows and their readers."""
