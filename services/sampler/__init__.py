"""What does the policy do next, given exactly these tokens? Drives every trial from records, through any crash."""
