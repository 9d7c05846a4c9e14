"""The question atlas: what the questions of a trained agent ask, over every state of its world.

states -> maps of every question -> ranking, captions, representation -> pictures -> the page
"""
