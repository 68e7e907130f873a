"""Gate: may this version collect more data, and is it better on held-out tasks?"""
