"""Times one PyTorch training step on the CPU: the baseline of our own training step.

One step is: zero_grad(set_to_none), noise, loss, forward, backward, AdamW. One JSON line a run.
  songunet : DDPM++ 32x32x3, 64 channels, mult 2,2,2, 4 blocks, attention at 16, batch 16, EDM loss
  adm      : 64x64x3, 64 channels, mult 1,2,3,4, 2 blocks, attention at 16 and 8, head width 32,
             batch 8, noise-prediction MSE under the linear schedule
Choices that matter are flags; report the fastest. A large heap that is never trimmed helps torch:
  MALLOC_MMAP_THRESHOLD_=4294967296 MALLOC_TRIM_THRESHOLD_=4294967296 python train_step.py ...
"""

import argparse
import contextlib
import json
import os
import resource
import statistics
import time

import torch

import networks

SONGUNET = dict(img_resolution=32, in_channels=3, out_channels=3, label_dim=0, augment_dim=0,
                model_channels=64, channel_mult=[2, 2, 2], channel_mult_emb=4, num_blocks=4,
                attn_resolutions=[16])
ADM = dict(image_size=64, in_channels=3, out_channels=3, model_channels=64, num_res_blocks=2,
           channel_mult=[1, 2, 3, 4], attention_resolutions=[16, 8], num_head_channels=32)
CASES = {"songunet": (networks.SongUNet, SONGUNET, 16, 32), "adm": (networks.AdmUNet, ADM, 8, 64)}


def edm_loss(net, y, autocast):
    """EDM's loss with sigma_data 0.5: weighted MSE of the preconditioned denoiser."""
    sigma = (torch.randn(y.shape[0], 1, 1, 1) * 1.2 - 1.2).exp()
    noisy = y + torch.randn_like(y) * sigma
    total = sigma**2 + 0.25
    with autocast():
        f = net(noisy * total.rsqrt(), sigma.log().flatten() / 4)
    denoised = noisy * (0.25 / total) + f.float() * (0.5 * sigma * total.rsqrt())
    return (total / (0.5 * sigma) ** 2 * (denoised - y) ** 2).mean()


ALPHAS_CUMPROD = (1 - torch.linspace(1e-4, 2e-2, 1000, dtype=torch.float64)).cumprod(0).float()


def eps_loss(net, x0, autocast):
    """Noise-prediction MSE at uniformly drawn steps of the linear schedule."""
    t = torch.randint(0, 1000, (x0.shape[0],))
    a = ALPHAS_CUMPROD[t].view(-1, 1, 1, 1)
    noise = torch.randn_like(x0)
    with autocast():
        out = net(a.sqrt() * x0 + (1 - a).sqrt() * noise, t)
    return ((out.float() - noise) ** 2).mean()


def optimiser(net, kind):
    options = {"fused": True} if kind == "fused" else {"foreach": True}
    return torch.optim.AdamW(net.parameters(), lr=1e-4, betas=(0.9, 0.999), **options)


def make_step(args):
    """The closure of one step, and the number of parameters."""
    torch.manual_seed(0)
    build, config, batch, side = CASES[args.network]
    layout = torch.channels_last if args.channels_last else torch.contiguous_format
    net = build(config).to(memory_format=layout)
    x = torch.randn(args.batch or batch, 3, side, side).contiguous(memory_format=layout)
    autocast = contextlib.nullcontext
    if args.dtype == "bf16":
        def autocast():
            return torch.autocast("cpu", dtype=torch.bfloat16)
    loss_of = edm_loss if args.network == "songunet" else eps_loss
    update = optimiser(net, args.optimiser)

    def forward(batch):
        return loss_of(net, batch, autocast)

    run = torch.compile(forward) if args.compile else forward

    def step():
        update.zero_grad(set_to_none=True)
        loss = run(x)
        loss.backward()
        update.step()
        return loss

    return step, sum(p.numel() for p in net.parameters()), x.shape[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("network", choices=CASES)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--dtype", choices=["f32", "bf16"], default="f32")
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--optimiser", choices=["fused", "foreach"], default="fused")
    parser.add_argument("--batch", type=int, default=0, help="0: the case's own")
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--steps", type=int, default=7)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    step, parameters, batch = make_step(args)
    start = time.perf_counter()
    loss = step().item()
    first = time.perf_counter() - start
    for _ in range(args.warmup - 1):
        step()
    times, cpu_times = [], []
    for _ in range(args.steps):
        start, cpu_start = time.perf_counter(), time.process_time()
        step()
        times.append(1e3 * (time.perf_counter() - start))
        cpu_times.append(1e3 * (time.process_time() - cpu_start))
    print(json.dumps({
        "bench": "train_step", "engine": f"torch {torch.__version__}", "network": args.network,
        "batch": batch, "parameters": parameters, "dtype": args.dtype, "threads": args.threads,
        "channels_last": args.channels_last, "compile": args.compile,
        "optimiser": args.optimiser, "median_ms": round(statistics.median(times), 1),
        "min_ms": round(min(times), 1), "max_ms": round(max(times), 1),
        "median_cpu_ms": round(statistics.median(cpu_times), 1), "steps": args.steps,
        "first_step_s": round(first, 1), "first_loss": round(loss, 6),
        "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "load_1m": round(os.getloadavg()[0], 2),
    }), flush=True)


if __name__ == "__main__":
    main()
