"""DiT (adaLN-Zero) in plain torch, written for speed: a baseline network.

Parameter names are those of the published checkpoints, so that the golden vectors check this module
too (check_networks.py). Attention goes through scaled_dot_product_attention.
"""

import torch
from torch import nn
from torch.nn import functional as F

from networks import sinusoid


def positions(side, width):
    """[1, side^2, width]: sines and cosines of the column, then of the row, of every token."""
    quarter = width // 4
    frequency = 10000.0 ** (-torch.arange(quarter, dtype=torch.float64) / quarter)
    angle = torch.arange(side, dtype=torch.float64)[:, None] * frequency
    one = torch.cat([angle.sin(), angle.cos()], dim=1)
    column = one[None].expand(side, side, -1)
    row = one[:, None].expand(side, side, -1)
    return torch.cat([column, row], dim=2).reshape(1, side * side, width).float()


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        n, t, c = x.shape
        q, k, v = self.qkv(x).view(n, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        return self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, t, c))


class Mlp(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(width, hidden), nn.Linear(hidden, width)

    def forward(self, x):
        return self.fc2(F.gelu(self.fc1(x), approximate="tanh"))


def modulated(x, shift, scale):
    x = F.layer_norm(x, x.shape[-1:], eps=1e-6)
    return x * (1 + scale[:, None]) + shift[:, None]


def modulation(width, parts):
    return nn.Sequential(nn.SiLU(), nn.Linear(width, parts * width))


class Block(nn.Module):
    def __init__(self, width, heads, ratio):
        super().__init__()
        self.attn, self.mlp = Attention(width, heads), Mlp(width, int(width * ratio))
        self.adaLN_modulation = modulation(width, 6)

    def forward(self, x, c):
        shift1, scale1, gate1, shift2, scale2, gate2 = self.adaLN_modulation(c).chunk(6, dim=1)
        x = x + gate1[:, None] * self.attn(modulated(x, shift1, scale1))
        return x + gate2[:, None] * self.mlp(modulated(x, shift2, scale2))


class Embedder(nn.Module):
    """A module whose layers have the names of the checkpoints."""

    def __init__(self, **layers):
        super().__init__()
        for name, layer in layers.items():
            self.add_module(name, layer)


class DiT(nn.Module):
    """c: the fields of the golden case dit_p2."""

    def __init__(self, c):
        super().__init__()
        width, patch = c["hidden_size"], c["patch_size"]
        self.patch, self.side = patch, c["input_size"] // patch
        self.channels = c["in_channels"] * (1 + c["learn_sigma"])
        self.x_embedder = Embedder(proj=nn.Conv2d(c["in_channels"], width, patch, stride=patch))
        self.t_embedder = Embedder(
            mlp=nn.Sequential(nn.Linear(256, width), nn.SiLU(), nn.Linear(width, width)))
        self.y_embedder = Embedder(embedding_table=nn.Embedding(c["num_classes"] + 1, width))
        self.register_buffer("pos_embed", positions(self.side, width), persistent=False)
        self.blocks = nn.ModuleList(
            Block(width, c["num_heads"], c["mlp_ratio"]) for _ in range(c["depth"]))
        self.final_layer = Embedder(linear=nn.Linear(width, patch * patch * self.channels),
                                    adaLN_modulation=modulation(width, 2))

    def forward(self, x, t, y):
        n = x.shape[0]
        x = self.x_embedder.proj(x).flatten(2).transpose(1, 2) + self.pos_embed
        levels = sinusoid(t, 256, 0).to(x.dtype)
        c = self.t_embedder.mlp(levels) + self.y_embedder.embedding_table(y)
        for block in self.blocks:
            x = block(x, c)
        shift, scale = self.final_layer.adaLN_modulation(c).chunk(2, dim=1)
        x = self.final_layer.linear(modulated(x, shift, scale))
        x = x.view(n, self.side, self.side, self.patch, self.patch, self.channels)
        x = x.permute(0, 5, 1, 3, 2, 4)
        return x.reshape(n, self.channels, self.side * self.patch, self.side * self.patch)
