"""The small networks of runs that programs made (comfyui_golden.py, webui_golden.py): their configs
in our fields, and weights that are hashed by the original's names. Beside them a LoRA of kohya's
names, an embedding and a control network for each."""

import numpy as np
import torch

from hashed_weights import hash_values, hashed_parameter

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

HINT_CHANNELS = [16, 32, 96, 256]  # as in the original, where they are fixed
LORA, EMBEDDING = "fox", "foxes"  # names of the files
RANK = 4
VECTORS = 3

NETWORKS = {
    "sd1": dict(unet=UNET, texts=[TEXT], autoencoder=AUTOENCODER),
    # another network of the same weights
    "sd1_heads": dict(unet=dict(UNET, num_heads=4), texts=[TEXT], autoencoder=AUTOENCODER),
    "xl": dict(unet=XL, texts=XL_TEXTS, autoencoder=AUTOENCODER),
    "refiner": dict(unet=REFINER, texts=XL_TEXTS[1:], autoencoder=AUTOENCODER),
    # trained to inpaint: beside the latents a mask and latents of a picture
    "sd1_inpaint": dict(unet=dict(UNET, extra_channels=5), texts=[TEXT], autoencoder=AUTOENCODER),
    "xl_inpaint": dict(unet=dict(XL, extra_channels=5), texts=XL_TEXTS, autoencoder=AUTOENCODER),
}


def unet_layers(c):
    """(diffusers' name, outputs, inputs, taps) of the layers of a U-Net that its LoRA changes."""
    per_level, widths = c["num_res_blocks"], [c["model_channels"] * m for m in c["channel_mult"]]
    depths, last = c["input_depths"], len(widths) - 1
    places = [(f"down_blocks_{i // per_level}", i % per_level, widths[i // per_level], d)
              for i, d in enumerate(depths)]
    places += [("mid_block", 0, widths[last], c["middle_depth"])]
    places += [(f"up_blocks_{i // (per_level + 1)}", i % (per_level + 1),
                widths[last - i // (per_level + 1)], d) for i, d in enumerate(c["output_depths"])]
    yield "down_blocks_0_resnets_1_conv1", widths[0], widths[0], [3, 3]
    for block, at, width, depth in places:
        for d in range(depth):
            name = f"{block}_attentions_{at}_transformer_blocks_{d}"
            yield f"{name}_attn1_to_q", width, width, []
            yield f"{name}_attn2_to_v", width, c["context"], []
            yield f"{name}_ff_net_0_proj", 8 * width, width, []
        if depth:
            yield f"{block}_attentions_{at}_proj_in", width, width, \
                [1, 1] if c["conv_projection"] else []


def text_layers(text):
    for i in range(text["layers"]):
        name = f"text_model_encoder_layers_{i}"
        for part in ("q", "k", "v", "out"):  # all: the web UI takes no part of open_clip's
            yield f"{name}_self_attn_{part}_proj", text["width"], text["width"], []
        yield f"{name}_mlp_fc1", text["hidden"], text["width"], []


def lora(net):
    """The tensors of a network's LoRA: [name, shape, scale, offset] each."""
    prefixes = ["lora_te_"] if len(net["texts"]) == 1 else ["lora_te1_", "lora_te2_"]
    layers = [("lora_unet_" + n, *rest) for n, *rest in unet_layers(net["unet"])]
    for prefix, text in zip(prefixes, net["texts"]):
        layers += [(prefix + n, *rest) for n, *rest in text_layers(text)]
    out = []
    for stem, outputs, inputs, taps in layers:
        out += [[f"{stem}.lora_down.weight", [RANK, inputs, *taps], 0.3, 0.0],
                [f"{stem}.lora_up.weight", [outputs, RANK, *[1 for _ in taps]], 0.3, 0.0],
                [f"{stem}.alpha", [], 0.0, 2.0]]
    return out


def embedding(net):
    """The tensors of an embedding for a network's text encoders, likewise."""
    names = ["emb_params"] if len(net["texts"]) == 1 else ["clip_l", "clip_g"]
    return [[n, [VECTORS, t["width"]], 0.3, 0.0] for n, t in zip(names, net["texts"])]


def tensors_of(specs):
    return {name: torch.from_numpy((offset + scale * hash_values(name, int(np.prod(shape))))
                                   .astype(np.float32).reshape(shape))
            for name, shape, scale, offset in specs}


def control_net(unet):
    return dict({k: v for k, v in unet.items()
                 if k not in ("image_size", "extra_channels", "output_depths")},
                hint_channels=HINT_CHANNELS)


for net in (NETWORKS["sd1"], NETWORKS["xl"]):
    net.update(lora_tensors=lora(net), embedding_tensors=embedding(net),
               control_net=control_net(net["unet"]))


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


def mask(height, width, shift=0):
    """Bytes [H,W]: a rectangle."""
    m = torch.zeros(height, width, dtype=torch.uint8)
    m[16 + shift:48 + shift, 8 + shift:40 + shift] = 255
    return m


def soft_mask(height, width):
    """Bytes [H,W]: any values."""
    y, x = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    return ((5 * x + 3 * y) % 256).to(torch.uint8)


def pattern(height, width, seed):
    """Bytes [H,W,3] for control networks."""
    y, x, c = np.meshgrid(np.arange(height), np.arange(width), np.arange(3), indexing="ij")
    values = (y * (3 + seed) + x * 5 + c * 70 + (y * x) // 9 * seed) % 256
    return torch.from_numpy(values.astype(np.uint8))
