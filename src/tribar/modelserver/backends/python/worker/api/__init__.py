"""``triton_python_backend_utils``: the names that a ``model.py`` finds in it, one file a noun."""
