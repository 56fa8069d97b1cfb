"""An operator of one's own from a formula: compiled at its first call, with gradients, and a node
like any other under torch.compile. No compiler is needed for it.

python custom_op.py [--tiny]
"""

import argparse

import torch

import ebb_kernels as ek
from compare import before_and_after, device_and_dtype


def own(x, y, bias):
    """Squared ReLU, gated, with a residual: three passes in plain torch."""
    return x + torch.relu(x + bias) ** 2 * torch.sigmoid(y)


def ours(x, y, bias):
    return ek.map("x + max(x + b, 0)**2 * sigmoid(y)", x=x, y=y, b=bias)


def gradients(function, *inputs):
    inputs = [t.detach().requires_grad_() for t in inputs]
    function(*inputs).square().mean().backward()
    return [t.grad for t in inputs]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tiny", action="store_true")
    tiny = parser.parse_args().tiny
    device, dtype = device_and_dtype(tiny)
    rows, columns = (64, 96) if tiny else (8192, 4096)
    torch.manual_seed(0)
    x, y = (torch.randn(rows, columns, device=device, dtype=dtype) for _ in range(2))
    bias = torch.randn(columns, device=device, dtype=dtype)

    for name, a, b in zip("x y b".split(), gradients(own, x, y, bias), gradients(ours, x, y, bias)):
        print(f"gradient of {name}: difference {((a - b).norm() / a.norm()).item():.1e}")
    graph = torch.compile(ours, fullgraph=True, backend="aot_eager" if tiny else "inductor")
    print(f"compiled: difference {(graph(x, y, bias) - ours(x, y, bias)).abs().max().item():.1e}")

    chosen = [own]

    def choose(function):
        chosen[0] = function
        return f"one kernel: {ours.__name__}"

    before_and_after(lambda: chosen[0](x, y, bias), lambda: choose(ours), lambda: choose(own))


if __name__ == "__main__":
    main()
