"""PyTorch: graphs of ATen operators as modules, and the backend of `torch.compile`.

`reader.py` reads, `backend.py` compiles what AOTAutograd gives. Importing this package does not import PyTorch; its
modules do.
"""
