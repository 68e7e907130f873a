"""The verifier: does the candidate do what the task asked, on evidence that it could not touch?"""
