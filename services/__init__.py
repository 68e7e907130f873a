"""One folder per service and per shared library; a folder's name is its import path."""
