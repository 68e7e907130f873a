"""Kills, stops, delays and cuts every part of a live stack by a seeded schedule, then proves that nothing was lost."""
