"""Tests of the stack for one machine with Docker."""
