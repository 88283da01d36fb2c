"""Triton's Python backend: a ``model.py`` runs in a worker process of its own for each instance.

Front end (the event loop)                                       worker (blocking, no event loop unless the model has one)
``backend`` makes an ``instance``, which keeps a ``process``     ``worker.main`` reads frames, ``worker.host`` runs the
alive; a ``link`` exchanges ``messages`` with it.                model, ``worker.api`` is ``triton_python_backend_utils``.

A batch is one frame each way over a socket pair. Its tensors travel inside the frame while they are small, otherwise in
one block of an ``arena``, memory that both processes map.
"""
