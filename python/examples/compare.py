"""What the examples share: times and differences of a call before and after a change."""

import statistics
import time

import torch


def milliseconds(call, runs=5):
    """Median of the runs after one to warm up, until the device is done."""
    times = []
    for _ in range(runs + 1):
        _wait()
        start = time.perf_counter()
        call()
        _wait()
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times[1:])


def _wait():
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def device_and_dtype(tiny):
    """A GPU and bf16; the CPU and f32 for the tiny models, which run anywhere."""
    if tiny or not torch.cuda.is_available():
        return "cpu", torch.float32
    return "cuda", torch.bfloat16


@torch.inference_mode()
def before_and_after(call, change, undo):
    """Prints the times of call() without and with a change, and how far the results differ."""
    own, own_ms = call(), milliseconds(call)
    print(change())
    ours, our_ms = call(), milliseconds(call)
    undo()
    error = ((ours - own).norm() / own.norm()).item()
    print(f"before {own_ms:.2f} ms, after {our_ms:.2f} ms ({own_ms / our_ms:.2f}x)")
    print(f"difference {error:.1e} of the result's norm")
    print(f"restored: {'bit-equal' if torch.equal(call(), own) else 'DIFFERENT'}")
