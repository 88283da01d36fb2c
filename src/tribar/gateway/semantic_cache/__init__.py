"""Answers without the engine: does a stored question have the same answer as the one just asked?"""
