"""Has no TritonPythonModel."""
