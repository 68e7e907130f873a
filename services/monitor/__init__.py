"""First eyes on a run: live records, one trial as a conversation, progress while it runs, the report when it ends."""
