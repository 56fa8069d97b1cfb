"""The small networks of runs that programs made (comfyui_golden.py, webui_golden.py): their configs
in our fields, and weights that are hashed by the original's names."""

import torch

from hashed_weights import hashed_parameter

UNET = dict(image_size=16, in_channels=4, extra_channels=0, model_channels=32,
            channel_mult=[1, 2], num_res_blocks=2, input_depths=[0, 0, 1, 1], middle_blocks=2,
            middle_depth=1, output_depths=[1, 1, 1, 0, 0, 0], num_heads=8, num_head_channels=0,
            context=32, conv_projection=True, vector=0, sizes=0, size_channels=8,
            guidance_channels=0, groups=32)
XL = dict(UNET, input_depths=[0, 0, 2, 2], middle_depth=2, output_depths=[2] * 3 + [0] * 3,
          num_heads=0, num_head_channels=16, conv_projection=False, context=64,
          vector=24 + 6 * 8, sizes=6)
REFINER = dict(XL, context=40, vector=24 + 5 * 8, sizes=5)
AUTOENCODER = dict(latent_channels=4, channels=32, channel_mult=[1, 1, 1, 1], res_blocks=1,
                   groups=32, quant_conv=True)
TEXT = dict(width=32, layers=4, heads=4, hidden=48, vocabulary=49408, positions=77, projection=0,
            activation="quick_gelu")
# open_clip's hidden layers have four times the width
XL_TEXTS = [dict(TEXT, width=24),
            dict(TEXT, width=40, hidden=160, projection=24, activation="gelu")]

NETWORKS = {
    "sd1": dict(unet=UNET, texts=[TEXT], autoencoder=AUTOENCODER),
    # another network of the same weights
    "sd1_heads": dict(unet=dict(UNET, num_heads=4), texts=[TEXT], autoencoder=AUTOENCODER),
    "xl": dict(unet=XL, texts=XL_TEXTS, autoencoder=AUTOENCODER),
    "refiner": dict(unet=REFINER, texts=XL_TEXTS[1:], autoencoder=AUTOENCODER),
}


def fill(module, drop=""):
    """Hashed weights; `drop`: a prefix that the originals' names lack."""
    with torch.no_grad():
        for name, value in module.named_parameters():
            value.copy_(torch.from_numpy(hashed_parameter(name.removeprefix(drop), value.shape)))
    return module.eval().requires_grad_(False)


def picture(height, width):
    """Bytes [H,W,3], by a rule that the tests repeat."""
    y, x, c = torch.meshgrid(torch.arange(height), torch.arange(width), torch.arange(3),
                             indexing="ij")
    return ((7 * x + 13 * y + 50 * c) % 256).to(torch.uint8)


def mask(height, width):
    """Bytes [H,W]: a rectangle."""
    m = torch.zeros(height, width, dtype=torch.uint8)
    m[16:48, 8:40] = 255
    return m
