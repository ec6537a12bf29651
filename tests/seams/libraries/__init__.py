"""Stand-ins for libraries of kernels: the same functions, which check what their documentation asks for."""
