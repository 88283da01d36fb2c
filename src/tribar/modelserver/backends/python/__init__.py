"""Triton's Python backend: a ``model.py`` runs in a worker process of its own for each instance.

In the front end, on its event loop: ``backend`` makes an ``instance``, which keeps a ``loaded_worker`` alive: a
``process`` and the ``link`` that exchanges ``messages`` with it. In the worker, without an event loop unless the model
has one: ``worker.main`` reads messages, ``worker.host`` runs the model, and ``worker.api`` is
``triton_python_backend_utils``.

A batch is one frame each way over a socket pair. Its tensors travel inside the frame while they are small, otherwise in
one block of an ``arena``, memory that both processes map.
"""
