"""LTX-Video's transformer with ebb's kernels.

python ltx_video.py [--checkpoint Lightricks/LTX-Video] [--frames 161 --height 512 --width 768]
                    [--compile] [--tiny]

Without a checkpoint the weights are random, of the published configuration: times are the same.
--tiny is a small model on the CPU, to see that all of it works.
"""

import argparse

import torch
from diffusers import LTXVideoTransformer3DModel

import ebb_kernels as ek
from compare import before_and_after, device_and_dtype

TINY = dict(
    in_channels=8,
    out_channels=8,
    num_attention_heads=2,
    attention_head_dim=32,
    cross_attention_dim=64,
    caption_channels=32,
    num_layers=2,
)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoint")
    parser.add_argument("--frames", type=int, default=161)
    parser.add_argument("--height", type=int, default=512)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--tiny", action="store_true")
    return parser.parse_args()


def load(given, device, dtype):
    if given.checkpoint:
        model = LTXVideoTransformer3DModel.from_pretrained(
            given.checkpoint, subfolder="transformer", torch_dtype=dtype
        )
    else:
        torch.manual_seed(0)
        model = LTXVideoTransformer3DModel(**(TINY if given.tiny else {})).to(dtype)
    return model.to(device).eval()


def step(model, given, device, dtype):
    """One evaluation of the model, of a batch of two for guidance. The autoencoder makes 8 frames
    and 32 x 32 pixels a token."""
    if given.tiny:
        frames, height, width, text = 2, 4, 4, 8
    else:
        frames, height, width, text = (
            given.frames // 8 + 1,
            given.height // 32,
            given.width // 32,
            128,
        )
    config = model.config
    made = dict(device=device, dtype=dtype, generator=torch.Generator(device).manual_seed(1))
    latents = torch.randn(2, frames * height * width, config.in_channels, **made)
    prompt = torch.randn(2, text, config.caption_channels, **made)
    times = torch.full((2,), 500.0, device=device)
    mask = torch.ones(2, text, device=device)
    return lambda: model(
        latents, prompt, times, mask, frames, height, width, return_dict=False
    )[0]  # fmt: skip


def main():
    given = arguments()
    device, dtype = device_and_dtype(given.tiny)
    model = load(given, device, dtype)

    def compiled():
        if given.compile:  # after inject(): compiled code keeps what it was made from
            torch.compiler.reset()
            model.compile(dynamic=False)

    def inject():
        model._compiled_call_impl = None
        report = ek.inject(model)
        compiled()
        return report

    def restore():
        model._compiled_call_impl = None
        ek.restore(model)
        compiled()

    compiled()
    before_and_after(step(model, given, device, dtype), inject, restore)


if __name__ == "__main__":
    main()
