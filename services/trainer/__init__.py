"""The trainer: what do these groups say the weights should be?"""
