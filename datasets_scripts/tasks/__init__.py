"""The data of a task: recipe keys, loading and sampling."""
