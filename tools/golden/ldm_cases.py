"""The LDM U-Nets: diffusers' module of a config in our fields, and the original's tensor names."""

import re

import torch
from diffusers import ControlNetModel, ControlNetUnionModel, UNet2DConditionModel

DEFAULTS = dict(image_size=16, in_channels=4, extra_channels=0, model_channels=32,
                channel_mult=[1, 2], num_res_blocks=2, input_depths=[0, 0, 1, 1], middle_blocks=2,
                middle_depth=1, output_depths=[1, 1, 1, 0, 0, 0], num_heads=0,
                num_head_channels=16, context=32, conv_projection=False, vector=0, sizes=0,
                size_channels=8, guidance_channels=0, groups=16)

CASES = {
    "ldm_sd1": dict(num_heads=8, num_head_channels=0, conv_projection=True),
    "ldm_sd2_inpaint": dict(extra_channels=5, input_depths=[1, 1, 1, 1], output_depths=[1] * 6),
    # editing, at a size whose levels cannot all be halved
    "ldm_ip2p_odd": dict(extra_channels=4, channel_mult=[1, 2, 2], num_res_blocks=1,
                         input_depths=[1, 1, 0], output_depths=[0, 0, 1, 1, 1, 1], num_heads=4,
                         num_head_channels=0, conv_projection=True),
    # with the guidance embedding of latent consistency models
    "ldm_sdxl_lcm": dict(input_depths=[0, 0, 2, 2], middle_depth=2, output_depths=[2] * 3 + [0] * 3,
                         context=64, vector=80, sizes=6, guidance_channels=4),
    "ldm_refiner": dict(channel_mult=[1, 2, 2, 2], num_res_blocks=1, input_depths=[0, 2, 2, 0],
                        middle_depth=2, output_depths=[0, 0, 2, 2, 2, 2, 0, 0], vector=72, sizes=5),
    # SSD-1B: one residual block in the middle, other depths on the way up
    "ldm_ssd1b": dict(channel_mult=[1, 2, 2], input_depths=[0, 0, 1, 1, 2, 2], middle_blocks=1,
                      middle_depth=0, output_depths=[2, 2, 3, 2, 1, 1, 0, 0, 0], vector=80,
                      sizes=6),
    "ldm_no_middle": dict(num_res_blocks=1, input_depths=[0, 2], middle_blocks=0, middle_depth=0,
                          output_depths=[2, 2, 0, 0], vector=80, sizes=6),
}

# of the network of this name; 2, or 4, pixels to a latent
CONTROL_CASES = {
    "control_sd1": ("ldm_sd1", [16, 32]),
    "control_sdxl": ("ldm_sdxl_lcm", [8, 16, 24]),
}

SIZES = {"ldm_ip2p_odd": (5, 9), "ldm_sd1": (8, 16)}

SD2 = dict(image_size=64, model_channels=320, channel_mult=[1, 2, 4, 4],
           input_depths=[1, 1, 1, 1, 1, 1, 0, 0], output_depths=[0] * 3 + [1] * 9, num_heads=0,
           num_head_channels=64, context=1024, groups=32, size_channels=256)
XL = dict(SD2, image_size=128, channel_mult=[1, 2, 4], input_depths=[0, 0, 2, 2, 10, 10],
          middle_depth=10, output_depths=[10] * 3 + [2] * 3 + [0] * 3, context=2048, vector=2816,
          sizes=6)
# published networks, of which names and shapes alone are looked at
PUBLISHED_CONTROL = {
    "control_sd15": dict(SD2, num_heads=8, num_head_channels=0, context=768, conv_projection=True,
                         hint_channels=[16, 32, 96, 256]),
    "control_sdxl": dict(XL, hint_channels=[16, 32, 96, 256]),
}
PUBLISHED = {
    "sd15": dict(SD2, num_heads=8, num_head_channels=0, context=768, conv_projection=True),
    "sd2": SD2,
    "sdxl": XL,
    "sdxl_refiner": dict(XL, model_channels=384, channel_mult=[1, 2, 4, 4],
                         input_depths=[0, 0, 4, 4, 4, 4, 0, 0], middle_depth=4,
                         output_depths=[0] * 3 + [4] * 6 + [0] * 3, context=1280, vector=2560,
                         sizes=5),
    "ssd1b": dict(XL, input_depths=[0, 0, 2, 2, 4, 4], middle_blocks=1, middle_depth=0,
                  output_depths=[4, 4, 10, 2, 1, 1, 0, 0, 0]),
    "segmind_vega": dict(XL, input_depths=[0, 0, 1, 1, 2, 2], middle_blocks=1, middle_depth=0,
                         output_depths=[2, 2, 2, 1, 1, 1, 0, 0, 0]),
}


def parts(depths, count):
    return [depths[i:i + count] for i in range(0, len(depths), count)]


def diffusers_fields(c):
    """The arguments of diffusers' modules for our config `c`."""
    blocks = c["num_res_blocks"]
    down, up = parts(c["input_depths"], blocks), parts(c["output_depths"], blocks + 1)
    channels = [m * c["model_channels"] for m in c["channel_mult"]]
    head = c["num_head_channels"]
    vector = dict(addition_embed_type="text_time", addition_time_embed_dim=c["size_channels"],
                  projection_class_embeddings_input_dim=c["vector"]) if c["vector"] else {}
    return dict(
        block_out_channels=tuple(channels), layers_per_block=blocks,
        down_block_types=tuple("CrossAttnDownBlock2D" if sum(d) else "DownBlock2D" for d in down),
        # the number of heads, whatever its name says
        attention_head_dim=tuple(n // head for n in channels) if head else c["num_heads"],
        transformer_layers_per_block=tuple(max(d[0], 1) for d in down),
        use_linear_projection=not c["conv_projection"], cross_attention_dim=c["context"],
        norm_num_groups=c["groups"], **vector), up


def unet(c):
    """diffusers' U-Net of our config `c`."""
    fields, up = diffusers_fields(c)
    middle = {0: None, 1: "UNetMidBlock2D", 2: "UNetMidBlock2DCrossAttn"}[c["middle_blocks"]]
    reverse = tuple(tuple(d) if sum(d) else 1 for d in up)
    depths = fields.pop("transformer_layers_per_block")
    if middle == "UNetMidBlock2DCrossAttn":  # its depth is that of the last level
        depths = (*depths[:-1], c["middle_depth"])
    return UNet2DConditionModel(
        in_channels=c["in_channels"] + c["extra_channels"], out_channels=c["in_channels"],
        mid_block_type=middle,
        up_block_types=tuple("CrossAttnUpBlock2D" if sum(d) else "UpBlock2D" for d in up),
        transformer_layers_per_block=depths, reverse_transformer_layers_per_block=reverse,
        time_cond_proj_dim=c["guidance_channels"] or None, **fields)


def control(c):
    """diffusers' control network of our config `c`."""
    fields, _ = diffusers_fields(c)
    depths = fields.pop("transformer_layers_per_block")
    return ControlNetModel(
        in_channels=c["in_channels"], conditioning_channels=3,
        transformer_layers_per_block=(*depths[:-1], c["middle_depth"]),
        conditioning_embedding_out_channels=tuple(c["hint_channels"]), **fields)


def union(c):
    """diffusers' control network of several tasks."""
    fields, _ = diffusers_fields(c)
    depths = fields.pop("transformer_layers_per_block")
    return ControlNetUnionModel(
        in_channels=c["in_channels"], conditioning_channels=3,
        transformer_layers_per_block=(*depths[:-1], c["middle_depth"]),
        conditioning_embedding_out_channels=tuple(c["hint_channels"]),
        num_control_type=c["tasks"], num_trans_layer=c["task_layers"],
        num_trans_channel=c["model_channels"], num_proj_channel=c["model_channels"], **fields)


# ---- names ---------------------------------------------------------------------------------

RES = {"norm1": "in_layers.0", "conv1": "in_layers.2", "time_emb_proj": "emb_layers.1",
       "norm2": "out_layers.0", "conv2": "out_layers.3", "conv_shortcut": "skip_connection"}
OTHERS = {"conv_in": "input_blocks.0.0", "time_embedding.linear_1": "time_embed.0",
          "time_embedding.linear_2": "time_embed.2",
          "time_embedding.cond_proj": "time_embed.cond_proj",
          "add_embedding.linear_1": "label_emb.0.0", "add_embedding.linear_2": "label_emb.0.2",
          "conv_norm_out": "out.0", "conv_out": "out.2"}
UNION = ("control_add_embedding.", "transformer_layes.", "spatial_ch_projs.", "task_embedding")


def original_name(name, c):
    """The original's name of the tensor that diffusers calls `name`."""
    if name.startswith(UNION):
        return name
    module, tensor = name.rsplit(".", 1)
    if module in OTHERS:
        return f"{OTHERS[module]}.{tensor}"
    if module.startswith("controlnet_"):
        return f"{control_module(module, c)}.{tensor}"
    blocks = c["num_res_blocks"]
    where = re.match(r"(?:(down|up)_blocks\.(\d+)|mid_block)\.(\w+)\.(\d+)\.(.*)", name)
    side, level, kind, index, rest = where.groups()
    level, index = int(level or 0), int(index)
    if kind == "resnets":
        inner = rest.split(".")
        rest = ".".join([RES[inner[0]], *inner[1:]])
    part = {"resnets": 0, "attentions": 1}.get(kind)
    if side == "down":
        if kind == "downsamplers":
            return f"input_blocks.{(blocks + 1) * (level + 1)}.0.op.{tensor}"
        return f"input_blocks.{(blocks + 1) * level + index + 1}.{part}.{rest}"
    if side == "up":
        if kind == "upsamplers":
            last = (blocks + 1) * level + blocks
            return f"output_blocks.{last}.{2 if c['output_depths'][last] else 1}.conv.{tensor}"
        return f"output_blocks.{(blocks + 1) * level + index}.{part}.{rest}"
    return f"middle_block.{2 * index if kind == 'resnets' else 1}.{rest}"


def control_module(module, c):
    """The original's name of a layer that only control networks have."""
    last = 2 * len(c["hint_channels"]) - 1
    hint = {"conv_in": 0, "conv_out": last} | {f"blocks.{i}": i + 1 for i in range(last - 1)}
    if module.startswith("controlnet_cond_embedding."):
        return f"input_hint_block.{2 * hint[module.removeprefix('controlnet_cond_embedding.')]}"
    if module == "controlnet_mid_block":
        return "middle_block_out.0"
    return f"zero_convs.{module.rsplit('.', 1)[1]}.0"


def names_of(module, c):
    """[original's name, diffusers' name, shape] of every tensor, by diffusers' names."""
    return [[original_name(n, c), n, list(p.shape)]
            for n, p in sorted(module.named_parameters())]


def on_meta(build, c):
    with torch.device("meta"):
        return build(c)
