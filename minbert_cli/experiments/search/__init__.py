"""Searches over fields of recipes: their points, and studies that choose them one by one."""
