"""The namespace of the operators, torch.ops.<NAMESPACE>. In a variant for the Hub, where hub.py
writes this file, it is that of the build: several builds can be in one process."""

NAMESPACE = "ebb_kernels"
