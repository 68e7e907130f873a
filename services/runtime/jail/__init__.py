"""Bubblewrap jails that run untrusted code: staging, launching, limits, evidence; shared by sandbox and verifier."""
