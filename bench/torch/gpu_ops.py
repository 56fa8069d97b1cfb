"""PyTorch's single operations on a GPU, in bf16: the baseline of `ebb bench --device cuda`.

    python bench/torch/gpu_ops.py [FILTER]

Each operation is captured as a CUDA graph that goes through enough copies of its data that no cache
holds any, and the graph is replayed; the fastest of PyTorch's ways (backends of attention,
torch.compile where it fuses) counts. Names are those of `ebb bench`; one JSON line an operation.
"""

import argparse
import json
import statistics

import torch
import torch._functorch.config
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

CONVS = [(32, 64, 64, 64), (32, 192, 64, 64), (32, 128, 128, 32), (32, 256, 256, 8),
         (32, 192, 192, 64), (32, 384, 384, 32), (32, 768, 768, 8), (2, 320, 320, 64),
         (2, 320, 320, 128), (2, 640, 640, 64), (2, 1280, 1280, 32), (1, 512, 512, 512),
         (1, 128, 128, 1024)]
# batch, heads, queries, keys, width, whether the gradient is measured too, and what masks or adds
# to the scores; as src/runtime/graph_cases.cpp has them.
HEADS = [(1, 24, 4608, 4608, 128, False, ""), (2, 10, 4096, 4096, 64, False, ""),
         (2, 20, 1024, 1024, 64, False, ""), (2, 8, 4096, 4096, 40, False, ""),
         (16, 8, 4096, 4096, 40, True, ""), (16, 8, 1024, 1024, 80, True, ""),
         (64, 16, 256, 256, 72, True, ""), (32, 6, 256, 256, 32, True, ""),
         (16, 16, 1024, 1024, 64, True, ""), (32, 9, 256, 256, 64, True, ""),
         (32, 12, 64, 64, 64, True, ""), (32, 8, 64, 64, 32, True, ""),
         (2, 8, 4096, 77, 40, True, ""), (2, 8, 1024, 77, 80, False, ""),
         (2, 8, 256, 77, 160, False, ""), (2, 8, 64, 77, 160, False, ""),
         (2, 10, 4096, 77, 64, True, ""), (2, 10, 4096, 154, 64, False, ""),
         (2, 10, 4096, 231, 64, False, ""), (2, 12, 77, 77, 64, False, "causal"),
         (2, 16, 77, 77, 64, False, "causal"), (2, 20, 77, 77, 64, True, "causal"),
         (1, 32, 1024, 1024, 128, True, "causal"), (1, 64, 512, 512, 64, True, "bias"),
         (2, 16, 4096, 300, 72, True, "lengths")]
LAYERS = [("qkv", 1152, 3456), ("proj", 1152, 1152), ("fc1", 1152, 4608), ("fc2", 4608, 1152)]
NORMS = [(1, 1024, 2048), (2, 1024, 2048), (4, 1024, 2048), (2, 4096, 3072), (4, 4096, 3072),
         (8, 8192, 4096)]
BACKENDS = (SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION,
            SDPBackend.EFFICIENT_ATTENTION)
IN_TURN = 256 << 20  # bytes, several times the cache


def rand(*shape):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def image(*nhwc):
    return rand(*nhwc).permute(0, 3, 1, 2)


def bytes_of(values):
    return sum(v.numel() * v.element_size() for v in values if torch.is_tensor(v))


def microseconds(make, run):
    """Median time of run(*make()) under replay, over copies of the data; also its spread."""
    sets = [make()]
    kept = run(*sets[0])
    kept = kept if isinstance(kept, (tuple, list)) else [kept]
    count = max(1, min(16, IN_TURN // max(1, bytes_of(sets[0]) + bytes_of(kept))))
    sets += [make() for _ in range(count - 1)]
    for data in sets:  # warms up
        run(*data)
    torch.cuda.synchronize()

    def timed(repeats, rounds):
        graph = torch.cuda.CUDAGraph()
        results = []  # kept, so that every run has memory of its own
        with torch.cuda.graph(graph, stream=torch.cuda.current_stream()):
            for _ in range(repeats):
                results = [run(*data) for data in sets]
        graph.replay()
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(rounds + 1)]
        marks[0].record()
        for mark in marks[1:]:
            graph.replay()
            mark.record()
        torch.cuda.synchronize()
        del results
        return [1e3 * a.elapsed_time(b) / repeats / count for a, b in zip(marks, marks[1:])]

    one = statistics.median(timed(1, 3))
    times = sorted(timed(max(1, min(64, int(2000 / one / count))), 15))
    median = statistics.median(times)
    return median, (times[13] - times[1]) / median


def convolutions():
    for b, i, o, s in CONVS:
        label = f"{b}x{s}x{s}_{i}_to_{o}"

        def make(b=b, i=i, o=o, s=s):
            return image(b, s, s, i), image(o, 3, 3, i), image(b, s, s, o)

        def backward(x, w, dy, mask):
            return torch.ops.aten.convolution_backward(
                dy, x, w, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1, mask)

        yield f"conv2d/{label}", make, [lambda x, w, dy: F.conv2d(x, w, padding=1)]
        yield (f"conv2d_dx/{label}", make,
               [lambda x, w, dy: backward(x, w, dy, [True, False, False])[0]])
        yield (f"conv2d_dw/{label}", make,
               [lambda x, w, dy: backward(x, w, dy, [False, True, False])[1]])


def score_mask(kind, b, a, t, s):
    """attn_mask of a kind of HEADS: added to the scores, or which keys are seen."""
    if kind == "bias":
        return rand(1, a, t, s)
    if kind == "lengths":
        lengths = torch.randint(0, s + 1, (b, 1, 1, 1), device="cuda")
        return torch.arange(s, device="cuda") < lengths.clamp(min=1)  # a row of none is no number
    return None


def attentions():
    for b, a, t, s, k, gradient, kind in HEADS:
        label = f"{b}x{a}_{t}_{s}_{k}" + (f"_{kind}" if kind else "")

        def attend(q, k, v, mask, causal=kind == "causal"):
            return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal)

        def make(b=b, a=a, t=t, s=s, k=k, kind=kind):
            qkv = [rand(b, n, a, k).transpose(1, 2).requires_grad_() for n in (t, s, s)]
            return *qkv, score_mask(kind, b, a, t, s)

        def forward(backend, attend=attend):
            def run(q, k, v, mask):
                with torch.no_grad(), sdpa_kernel([backend]):
                    return attend(q, k, v, mask)
            return run

        def with_graph(backend, make=make, attend=attend):
            def data():
                q, k, v, mask = make()
                with sdpa_kernel([backend]):
                    out = attend(q, k, v, mask)
                return q, k, v, out, torch.randn_like(out)
            return data

        def backward(q, k, v, out, dout):
            return torch.autograd.grad(out, (q, k, v), dout, retain_graph=True)

        yield f"attention/{label}", make, [forward(x) for x in BACKENDS]
        if gradient:
            yield (f"attention_grad/{label}", [with_graph(x) for x in BACKENDS],
                   [backward] * len(BACKENDS))


def products():
    def one(x, y, run):
        return lambda: (rand(*x), rand(*y)), [run]

    for n in (4096, 8192):
        yield f"matmul/square_{n}", *one((n, n), (n, n), lambda x, w: x @ w.T)
    tokens = 16384
    for name, i, o in LAYERS:
        yield f"matmul/dit_{name}", *one((tokens, i), (o, i), lambda x, w: x @ w.T)
        yield f"matmul/dit_{name}_dx", *one((tokens, o), (o, i), lambda dy, w: dy @ w)
        yield f"matmul/dit_{name}_dw", *one((tokens, o), (tokens, i), lambda dy, x: dy.T @ x)


def rms_norm(x, gamma):
    f = x.float()
    return (f * torch.rsqrt(f.square().mean(-1, keepdim=True) + 1e-6) * gamma).to(x.dtype)


def ada_ln(x, shift, scale):
    return F.layer_norm(x, x.shape[-1:], eps=1e-6) * (1 + scale[:, None]) + shift[:, None]


def geglu(x):
    a, b = x.chunk(2, dim=-1)
    return a * F.gelu(b)


def linear_geglu(x, w, b):
    return geglu(F.linear(x, w, b))


def linear_swiglu(x, w, b):
    a, c = F.linear(x, w, b).chunk(2, dim=-1)
    return F.silu(a) * c


def layer_norm(x, gamma, beta):
    return F.layer_norm(x, x.shape[-1:], gamma, beta)


def group_norm_silu(x, gamma, beta):
    return F.silu(F.group_norm(x, 32, gamma, beta))


def norms():
    def name(op, shape):
        return f"{op}/[{','.join(map(str, shape))}]"

    def both(run):
        return [run, torch.compile(run, dynamic=False)]

    # Forward, and the gradients of all inputs with what PyTorch keeps of the forward pass.
    def with_gradient(op, shape, make, runs):
        def kept(run):
            def data():
                x = [v.requires_grad_() for v in make()]
                y = run(*x)
                return y, torch.randn_like(y), *x
            return data

        def backward(y, dy, *x):
            return torch.autograd.grad(y, x, dy, retain_graph=True)

        yield name(op, shape), make, runs
        yield name(op + "_grad", shape), [kept(run) for run in runs], [backward] * len(runs)

    for s in NORMS:
        yield from with_gradient("rms_norm", s, lambda s=s: (rand(*s), rand(s[-1])),
                                 [*both(rms_norm),
                                  lambda x, g: F.rms_norm(x, x.shape[-1:], g, 1e-6)])
    s = (2, 4096, 3072)
    yield from with_gradient("ada_ln", s, lambda: (rand(*s), rand(2, 3072), rand(2, 3072)),
                             both(ada_ln))
    t = (64, 256, 1152)
    yield from with_gradient("layer_norm", t, lambda: (rand(*t), rand(1152), rand(1152)),
                             both(layer_norm))
    yield name("geglu", (2, 4096, 20480)), lambda: (rand(2, 4096, 20480),), both(geglu)
    for run, m, i, half in ((linear_geglu, 8192, 1280, 5120), (linear_geglu, 4096, 640, 2560),
                            (linear_swiglu, 16384, 1152, 3072)):
        yield (f"{run.__name__}/{m}_{i}_to_{half}",
               lambda m=m, i=i, half=half: (rand(m, i), rand(2 * half, i), rand(2 * half)),
               both(run))
    for s in ((2, 128, 128, 320), (32, 64, 64, 192)):
        yield from with_gradient("group_norm_silu", s,
                                 lambda s=s: (image(*s), rand(s[-1]), rand(s[-1])),
                                 both(group_norm_silu))


def adamw():
    def make():
        p = torch.nn.Parameter(torch.randn(64 << 20, device="cuda"))
        p.grad = torch.randn_like(p)
        return p, torch.optim.AdamW([p], lr=1e-4, fused=True, capturable=True)

    yield "adamw/64m", make, [lambda p, update: update.step() or p]


def fastest(makes, runs):
    makes = makes if isinstance(makes, list) else [makes] * len(runs)
    results = []
    for i, (make, run) in enumerate(zip(makes, runs)):
        try:
            results.append((*microseconds(make, run), i))
        except RuntimeError:  # a backend that does not serve the shape
            continue
    return min(results) if results else None


def report(name, result):
    line = {"bench": "op", "engine": f"torch {torch.__version__}", "case": name}
    line |= ({"us": round(result[0], 2), "spread": round(result[1], 3), "way": result[2]}
             if result else {"error": "no mode supports it"})
    print(json.dumps(line), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("filter", nargs="?", default="")
    args = parser.parse_args()
    torch.backends.cudnn.benchmark = True
    torch._dynamo.config.cache_size_limit = 64
    torch._functorch.config.donated_buffer = False  # gradients are asked for more than once
    # Captures want a stream of their own, and gradients run on the stream of their forward pass.
    with torch.cuda.stream(torch.cuda.Stream()):
        for group in (products, convolutions, attentions, norms, adamw):
            for name, makes, runs in group():
                if args.filter in name:
                    report(name, fastest(makes, runs))


if __name__ == "__main__":
    main()
