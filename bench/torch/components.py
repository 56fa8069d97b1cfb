"""Text encoders and autoencoders in plain torch, written for speed: baselines for sampling.

Names and layouts of parameters are those of the original files, so that hashed weights are ebb's
(tools/golden/hashed_weights.py); check_networks.py checks the modules.
"""

import sys
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools/golden"))
from record import fill_hashed, image  # noqa: E402


class Scope(nn.Module):
    """Holds modules under a name."""

    def __init__(self, **modules):
        super().__init__()
        for name, module in modules.items():
            self.add_module(name, module)


# ---- the autoencoder of latent diffusion -------------------------------------------------------


def conv(cin, cout, size=3):
    return nn.Conv2d(cin, cout, size, padding=size // 2)


class Res(nn.Module):
    def __init__(self, cin, cout, groups):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(groups, cin, eps=1e-6), conv(cin, cout)
        self.norm2, self.conv2 = nn.GroupNorm(groups, cout, eps=1e-6), conv(cout, cout)
        self.nin_shortcut = conv(cin, cout, 1) if cin != cout else nn.Identity()

    def forward(self, x):
        h = self.conv1(F.silu(self.norm1(x)))
        return self.nin_shortcut(x) + self.conv2(F.silu(self.norm2(h)))


class Attention(nn.Module):
    """One head; q, k and v in one product."""

    def __init__(self, channels, groups):
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels, eps=1e-6)
        self.q, self.k, self.v, self.proj_out = (conv(channels, channels, 1) for _ in range(4))

    def forward(self, x):
        n, c, height, width = x.shape
        tokens = self.norm(x).permute(0, 2, 3, 1).reshape(n, 1, height * width, c)
        weight = torch.cat([m.weight.flatten(1) for m in (self.q, self.k, self.v)])
        bias = torch.cat([self.q.bias, self.k.bias, self.v.bias])
        q, k, v = F.linear(tokens, weight, bias).chunk(3, dim=-1)
        out = F.scaled_dot_product_attention(q, k, v)
        out = F.linear(out, self.proj_out.weight.flatten(1), self.proj_out.bias)
        return x + out.view(n, height, width, c).permute(0, 3, 1, 2)


class Upsample(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = conv(channels, channels)

    def forward(self, x):
        return self.conv(F.interpolate(x, scale_factor=2, mode="nearest"))


class Downsample(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, stride=2)

    def forward(self, x):
        return self.conv(F.pad(x, (0, 1, 0, 1)))


def middle(channels, groups):
    return Scope(block_1=Res(channels, channels, groups), attn_1=Attention(channels, groups),
                 block_2=Res(channels, channels, groups))


class Half(nn.Module):
    """What both directions share."""

    def end(self, x):
        return self.conv_out(F.silu(self.norm_out(x)))

    def through_middle(self, x):
        return self.mid.block_2(self.mid.attn_1(self.mid.block_1(x)))


class Decoder(Half):
    def __init__(self, c):
        super().__init__()
        widths = [c["channels"] * m for m in c["channel_mult"]]
        at, groups = widths[-1], c["groups"]
        self.conv_in, self.mid = conv(c["latent_channels"], at), middle(at, groups)
        up = []
        for i in reversed(range(len(widths))):
            blocks = []
            for _ in range(c["res_blocks"] + 1):
                blocks.append(Res(at, widths[i], groups))
                at = widths[i]
            up.insert(0, Scope(block=nn.ModuleList(blocks),
                               **({"upsample": Upsample(at)} if i else {})))
        self.up = nn.ModuleList(up)
        self.norm_out, self.conv_out = nn.GroupNorm(groups, at, eps=1e-6), conv(at, 3)

    def forward(self, x):
        x = self.through_middle(self.conv_in(x))
        for level in reversed(self.up):
            for block in level.block:
                x = block(x)
            x = level.upsample(x) if hasattr(level, "upsample") else x
        return self.end(x)


class Encoder(Half):
    def __init__(self, c):
        super().__init__()
        widths = [c["channels"] * m for m in c["channel_mult"]]
        at, groups, down = widths[0], c["groups"], []
        self.conv_in = conv(3, at)
        for i, width in enumerate(widths):
            blocks = []
            for _ in range(c["res_blocks"]):
                blocks.append(Res(at, width, groups))
                at = width
            last = i + 1 == len(widths)
            down.append(Scope(block=nn.ModuleList(blocks),
                              **({} if last else {"downsample": Downsample(at)})))
        self.down, self.mid = nn.ModuleList(down), middle(at, groups)
        self.norm_out = nn.GroupNorm(groups, at, eps=1e-6)
        self.conv_out = conv(at, 2 * c["latent_channels"])

    def forward(self, x):
        x = self.conv_in(x)
        for level in self.down:
            for block in level.block:
                x = block(x)
            x = level.downsample(x) if hasattr(level, "downsample") else x
        return self.end(self.through_middle(x))


class Decode(nn.Module):
    def __init__(self, c):
        super().__init__()
        z = c["latent_channels"]
        self.post_quant_conv = conv(z, z, 1) if c["quant_conv"] else nn.Identity()
        self.decoder = Decoder(c)

    def forward(self, latents):
        return self.decoder(self.post_quant_conv(latents))


class Encode(nn.Module):
    """The mean."""

    def __init__(self, c):
        super().__init__()
        z = 2 * c["latent_channels"]
        self.quant_conv = conv(z, z, 1) if c["quant_conv"] else nn.Identity()
        self.encoder = Encoder(c)

    def forward(self, pixels):
        return self.quant_conv(self.encoder(pixels)).chunk(2, dim=1)[0]


# ---- CLIP's text encoder -----------------------------------------------------------------------


class ClipAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            self.add_module(name, nn.Linear(width, width))

    def forward(self, x):
        n, t, c = x.shape
        weight = torch.cat([self.q_proj.weight, self.k_proj.weight, self.v_proj.weight])
        bias = torch.cat([self.q_proj.bias, self.k_proj.bias, self.v_proj.bias])
        qkv = F.linear(x, weight, bias).view(n, t, 3, self.heads, c // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out_proj(out.transpose(1, 2).reshape(n, t, c))


class ClipLayer(nn.Module):
    def __init__(self, c):
        super().__init__()
        width, self.quick = c["width"], c["activation"] == "quick_gelu"
        self.self_attn = ClipAttention(width, c["heads"])
        self.layer_norm1, self.layer_norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mlp = Scope(fc1=nn.Linear(width, c["hidden"]), fc2=nn.Linear(c["hidden"], width))

    def forward(self, x):
        x = x + self.self_attn(self.layer_norm1(x))
        h = self.mlp.fc1(self.layer_norm2(x))
        h = h * torch.sigmoid(1.702 * h) if self.quick else F.gelu(h)
        return x + self.mlp.fc2(h)


class ClipText(nn.Module):
    """The last layer's states through the final norm."""

    def __init__(self, c):
        super().__init__()
        width = c["width"]
        self.text_model = Scope(
            embeddings=Scope(token_embedding=nn.Embedding(c["vocabulary"], width),
                             position_embedding=nn.Embedding(c["positions"], width)),
            encoder=Scope(layers=nn.ModuleList(ClipLayer(c) for _ in range(c["layers"]))),
            final_layer_norm=nn.LayerNorm(width))

    def forward(self, tokens):
        m = self.text_model
        x = m.embeddings.token_embedding(tokens)
        x = x + m.embeddings.position_embedding.weight[:tokens.shape[1]]
        for layer in m.encoder.layers:
            x = layer(x)
        return m.final_layer_norm(x)


# ---- cases -------------------------------------------------------------------------------------

VAE = dict(latent_channels=4, channels=128, channel_mult=[1, 2, 4, 4], res_blocks=2, groups=32,
           quant_conv=True)
CLIP_L = dict(width=768, layers=12, heads=12, hidden=3072, vocabulary=49408, positions=77,
              activation="quick_gelu")
TINY_VAE = {**VAE, "channels": 32, "channel_mult": [1, 2]}
# ebb's name: network, config, inputs; [1,height,width] of the pixels, or tokens
CASES = {
    "decode/vae_512": (Decode, VAE, [512, 512]),
    "decode/vae_768x512": (Decode, VAE, [512, 768]),
    "decode/vae_1024": (Decode, VAE, [1024, 1024]),
    "encode/vae_1024": (Encode, VAE, [1024, 1024]),
    "encode_text/clip_l": (ClipText, CLIP_L, 77),
    "decode/tiny": (Decode, TINY_VAE, [32, 48]),
}
BLOCKS = (Res, Attention, Upsample, Downsample, ClipLayer)


class Evaluation:
    """A network with its inputs, as gpu_denoise.py runs them."""

    def __init__(self, case, device):
        build, config, size = CASES[case]
        self.net, self.count = fill_hashed(build(config)), 1
        self.net = self.net.to(device, torch.bfloat16).eval().requires_grad_(False)
        if build is ClipText:
            ids = (torch.arange(size) * 613 + 320) % config["vocabulary"]
            self.input = ids[None].to(device)
            return
        self.net = self.net.to(memory_format=torch.channels_last)
        down = 2 ** (len(config["channel_mult"]) - 1)
        shape = [1, *size, 3] if build is Encode else [1, *(s // down for s in size), 4]
        name = "input.pixels" if build is Encode else "input.latents"
        self.input = image(name, shape).to(device, torch.bfloat16)
        self.input = self.input.contiguous(memory_format=torch.channels_last)

    def run(self):
        with torch.no_grad():
            return self.net(self.input)
