"""Dispatch: which task next, for how many, and is there credit for it?"""
