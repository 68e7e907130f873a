"""The wire: every record and topic of Rollstream, declared once; imports nothing else of the project."""
