"""Closure: is the planned cohort resolved, and what are its coefficients?"""
