"""Exploit watch (pure): signs in candidates and tool calls that a policy games its checks; counted, never a reward."""
