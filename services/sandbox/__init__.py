"""The sandbox service: what happens when this command runs in this trial's workspace?"""
