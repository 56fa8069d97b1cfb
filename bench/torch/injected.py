"""Models of diffusers and transformers with ebb's functions and without, each as it is and
compiled: one evaluation in bf16 on a GPU.

    PYTHONPATH=python python bench/torch/injected.py [CASE ...] [--json FILE] [--train]

Weights are random, of published configurations; models of many equal blocks have fewer of them
(--layers), so that all four ways fit beside each other, sharing one copy of the weights. Ways:
eager, ebb (eager and injected), compile (its blocks compiled, as diffusers'
compile_repeated_blocks() does), compile+ebb (injected, then compiled). Before timing, the results
of all ways are compared with the model's in f32. Times are between CUDA events, by turns, medians.
--train: forward, backward and nothing else. --profile: also each way's kernels, by time. One JSON
line a case; a table last.
"""

import argparse
import json
import statistics
import sys
import time

import torch

import ebb_kernels as ek

WAYS = ("eager", "ebb", "compile", "compile+ebb")
BF16 = torch.bfloat16


def rand(*shape, dtype=BF16):
    return torch.randn(*shape, device="cuda", dtype=dtype)


# ---- cases: how to make a model, its operands, and the lists of blocks that are compiled -----

def ltx(layers):
    from diffusers import LTXVideoTransformer3DModel
    frames, height, width = 21, 16, 24  # latents of 161 frames of 512x768
    inputs = dict(hidden_states=rand(2, frames * height * width, 128),
                  encoder_hidden_states=rand(2, 128, 4096),
                  timestep=torch.full((2,), 500.0, device="cuda"),
                  encoder_attention_mask=torch.ones(2, 128, device="cuda"),
                  num_frames=frames, height=height, width=width)
    return (lambda: LTXVideoTransformer3DModel(num_layers=layers or 28)), inputs, \
        ("transformer_blocks",)


def flux(layers):
    from diffusers import FluxTransformer2DModel
    inputs = dict(hidden_states=rand(1, 4096, 64), encoder_hidden_states=rand(1, 512, 4096),
                  pooled_projections=rand(1, 768), timestep=torch.full((1,), 0.5, device="cuda"),
                  guidance=torch.full((1,), 3.5, device="cuda"),
                  img_ids=torch.randint(64, (4096, 3), device="cuda").to(BF16),
                  txt_ids=torch.zeros(512, 3, device="cuda", dtype=BF16))
    n = layers or 4
    return (lambda: FluxTransformer2DModel(num_layers=n, num_single_layers=2 * n,
                                           guidance_embeds=True)), inputs, \
        ("transformer_blocks", "single_transformer_blocks")


def wan(layers):
    from diffusers import WanTransformer3DModel
    inputs = dict(hidden_states=rand(1, 16, 21, 60, 104), encoder_hidden_states=rand(1, 512, 4096),
                  timestep=torch.full((1,), 500.0, device="cuda"))
    return (lambda: WanTransformer3DModel(num_attention_heads=12, ffn_dim=8960,
                                          num_layers=layers or 4)), inputs, ("blocks",)


def sd3(layers):
    from diffusers import SD3Transformer2DModel
    inputs = dict(hidden_states=rand(2, 16, 128, 128), encoder_hidden_states=rand(2, 333, 4096),
                  pooled_projections=rand(2, 2048), timestep=torch.full((2,), 500.0, device="cuda"))
    return (lambda: SD3Transformer2DModel(sample_size=128, num_layers=layers or 24,
                                          num_attention_heads=24, caption_projection_dim=1536,
                                          pos_embed_max_size=192)), inputs, ("transformer_blocks",)


def llama(layers, tokens=8192):
    from transformers import LlamaConfig, LlamaModel
    config = LlamaConfig(hidden_size=4096, intermediate_size=14336, num_attention_heads=32,
                         num_key_value_heads=8, num_hidden_layers=layers or 8, vocab_size=32000,
                         rope_theta=500000.0, max_position_embeddings=8192, use_cache=False)
    return (lambda: LlamaModel(config)), \
        dict(input_ids=torch.randint(32000, (1, tokens), device="cuda")), ("layers",)


def sdxl(layers):
    from diffusers import UNet2DConditionModel
    config = dict(
        sample_size=128, cross_attention_dim=2048, block_out_channels=(320, 640, 1280),
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
        transformer_layers_per_block=(1, 2, 10), attention_head_dim=(5, 10, 20),
        use_linear_projection=True, addition_embed_type="text_time",
        addition_time_embed_dim=256, projection_class_embeddings_input_dim=2816)
    inputs = dict(sample=rand(2, 4, 128, 128), timestep=torch.tensor(500.0, device="cuda"),
                  encoder_hidden_states=rand(2, 77, 2048),
                  added_cond_kwargs={"text_embeds": rand(2, 1280), "time_ids": rand(2, 6)})
    return (lambda: UNet2DConditionModel(**config)), inputs, None


CASES = {f.__name__: f for f in (ltx, flux, wan, sd3, llama, sdxl)}


# ---- one case --------------------------------------------------------------------------------

def models(make, blocks):
    """A model for each way, of the same weights, and one of them in f32."""
    torch.manual_seed(0)
    with torch.device("cuda"):
        torch.set_default_dtype(BF16)
        first = make()
        torch.set_default_dtype(torch.float32)
    for p in first.parameters():  # what starts as zeros would hide errors
        if not p.any():
            torch.nn.init.normal_(p, std=0.02)
    out = {}
    for way in WAYS:
        with torch.device("cuda"):
            torch.set_default_dtype(BF16)
            model = make() if way != "eager" else first
            torch.set_default_dtype(torch.float32)
        model.load_state_dict(first.state_dict(), assign=True)
        model.eval()
        if blocks is None:
            model.to(memory_format=torch.channels_last)
        if way.endswith("ebb"):
            print(f"  {ek.inject(model)}".splitlines()[0], file=sys.stderr)
        if way.startswith("compile"):
            compile_blocks(model, blocks)
        out[way] = model
    return out


def compile_blocks(model, names):
    if names is None:
        model.compile(fullgraph=True, dynamic=False)
        return
    for name in names:
        for block in getattr(model, name):
            block.compile(fullgraph=True, dynamic=False)


def result(model, inputs):
    out = model(**inputs, return_dict=False)[0]
    return out


def run(model, inputs, train):
    if not train:
        with torch.inference_mode():
            return result(model, inputs)
    out = result(model, inputs)
    torch.autograd.backward(out, torch.ones_like(out))
    model.zero_grad(set_to_none=True)
    return out.detach()


def exact(make, first, inputs):
    """The model's result in f32."""
    with torch.device("cuda"):
        wide = make().eval()
    wide.load_state_dict(first.state_dict())

    def widened(x):
        if isinstance(x, dict):
            return {k: widened(v) for k, v in x.items()}
        return x.float() if torch.is_tensor(x) and x.dtype == BF16 else x

    with torch.inference_mode():
        return result(wide, {k: widened(v) for k, v in inputs.items()}).double()


def kernels(model, inputs, train):
    """(name, launches, ms) of one evaluation, the longest first."""
    from torch.profiler import ProfilerActivity, profile
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        run(model, inputs, train)
        torch.cuda.synchronize()
    found = [(e.key, e.count, round(e.self_device_time_total * 1e-3, 3))
             for e in seen.key_averages() if e.self_device_time_total > 0]
    return sorted(found, key=lambda e: -e[2])


def case(name, args):
    make, inputs, blocks = CASES[name](args.layers)
    ways = models(make, blocks)
    want = exact(make, ways["eager"], inputs)
    errors, first_s = {}, {}
    for way, model in ways.items():
        start = time.perf_counter()
        got = run(model, inputs, args.train).double()
        torch.cuda.synchronize()
        first_s[way] = round(time.perf_counter() - start, 2)
        errors[way] = float(f"{((got - want).norm() / want.norm()).item():.2e}")
        run(model, inputs, args.train)
    del want
    times = {way: [] for way in ways}
    for _ in range(args.rounds):
        for way, model in ways.items():
            for _ in range(args.runs):
                marks = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
                marks[0].record()
                run(model, inputs, args.train)
                marks[1].record()
                torch.cuda.synchronize()
                times[way].append(marks[0].elapsed_time(marks[1]))
    for way, model in ways.items() if args.profile else ():
        found = kernels(model, inputs, args.train)
        print(f"  {name}, {way}: {sum(n for _, n, _ in found)} launches,"
              f" {sum(t for *_, t in found):.3f} ms", file=sys.stderr)
        for kernel, count, time_ms in found[:24]:
            print(f"    {time_ms:9.3f} ms {count:5}  {kernel[:120]}", file=sys.stderr)
    ms = {way: round(statistics.median(t), 3) for way, t in times.items()}
    fine = all(errors[w] <= 1.05 * errors["eager"] + 1e-3 for w in ways)
    return {"bench": "injected", "case": name, "train": args.train, "dtype": "bf16", "ms": ms,
            "ratio_eager": round(ms["eager"] / ms["ebb"], 3),
            "ratio_compile": round(ms["compile"] / ms["compile+ebb"], 3),
            "errors": errors, "right": fine, "first_s": first_s, "layers": args.layers,
            "device": torch.cuda.get_device_name(), "torch": torch.__version__,
            "date": time.strftime("%Y-%m-%d")}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", choices=CASES, default=["ltx", "flux"])
    parser.add_argument("--layers", type=int, default=0, help="of a model; 0: the case's own")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--runs", type=int, default=4, help="a round")
    parser.add_argument("--train", action="store_true")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--json", help="file that lines are added to")
    args = parser.parse_args()
    torch._dynamo.config.cache_size_limit = 64
    lines = []
    for name in args.cases:
        try:
            lines.append(case(name, args))
        except Exception as problem:  # another case may go
            print(f"FAILED {name}: {type(problem).__name__}: {str(problem)[:500]}", file=sys.stderr)
            continue
        print(json.dumps(lines[-1]), file=sys.stderr, flush=True)
        if args.json:
            with open(args.json, "a") as file:
                file.write(json.dumps(lines[-1]) + "\n")
        torch.cuda.empty_cache()
    print(f"\n{'case':10} " + " ".join(f"{w:>12}" for w in WAYS) + "   eager  compile  right")
    for line in lines:
        print(f"{line['case']:10} " + " ".join(f"{line['ms'][w]:12.2f}" for w in WAYS) +
              f"   {line['ratio_eager']:5.2f}  {line['ratio_compile']:7.2f}  {line['right']}")


if __name__ == "__main__":
    main()
