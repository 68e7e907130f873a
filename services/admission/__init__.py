"""Admission: is every member of a closed group fresh enough to train on?"""
