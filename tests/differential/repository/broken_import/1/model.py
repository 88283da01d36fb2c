"""Wants a module that nobody has."""

import a_module_that_nobody_has

TritonPythonModel = a_module_that_nobody_has.Model
