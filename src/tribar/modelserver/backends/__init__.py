"""What runs a model's file. A new backend is one file here and one line in ``registry``."""
