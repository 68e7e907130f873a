"""Certification of check-sets through the verifier's own jails: what must pass, what must fail, how surely."""
