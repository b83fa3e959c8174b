"""The broker at its name servers.

registration.py    what it says of itself, to all of them, again and again
announcements.py   topics that are new to them
"""
