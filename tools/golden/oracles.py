"""PyTorch oracles of our own: DiT (Peebles and Xie, arXiv:2212.09748) and the CS179 MNIST U-Net.

Both run in float32 or float64 (whatever their parameters are) and carry the parameter names of the
published checkpoints. Images are NCHW here, as in torch; the callers convert.
"""

import math

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


def sin_cos_1d(width, positions):
    """[sin, cos] of positions * 10000^(-i/(width/2)), float64 [len(positions), width]."""
    omega = 10000.0 ** -(np.arange(width // 2, dtype=np.float64) / (width / 2))
    angle = np.outer(np.asarray(positions, dtype=np.float64), omega)
    return np.concatenate([np.sin(angle), np.cos(angle)], axis=1)


def dit_pos_embed(width, side):
    """Fixed 2-D table [1, side*side, width]: first half from the column, second from the row."""
    row, column = np.divmod(np.arange(side * side), side)
    halves = [sin_cos_1d(width // 2, column), sin_cos_1d(width // 2, row)]
    return torch.from_numpy(np.concatenate(halves, axis=1)[None]).float()


class DiTTimestep(nn.Module):
    def __init__(self, width, frequencies=256):
        super().__init__()
        self.half = frequencies // 2
        self.mlp = nn.Sequential(nn.Linear(frequencies, width), nn.SiLU(), nn.Linear(width, width))

    def forward(self, t, dtype):
        i = torch.arange(self.half, dtype=dtype)
        angle = t.to(dtype)[:, None] * torch.exp(-math.log(10000.0) * i / self.half)
        return self.mlp(torch.cat([angle.cos(), angle.sin()], dim=1))


class DiTAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x):
        n, tokens, width = x.shape
        parts = self.qkv(x).view(n, tokens, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) / math.sqrt(width // self.heads)
        return self.proj((scores.softmax(-1) @ v).transpose(1, 2).reshape(n, tokens, width))


class DiTMlp(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.fc1 = nn.Linear(width, hidden)
        self.fc2 = nn.Linear(hidden, width)

    def forward(self, x):
        return self.fc2(F.gelu(self.fc1(x), approximate="tanh"))


def norm_modulated(x, shift, scale):
    """LayerNorm without affine (eps 1e-6), then x * (1 + scale) + shift per sample."""
    return F.layer_norm(x, x.shape[-1:], eps=1e-6) * (1 + scale[:, None]) + shift[:, None]


class DiTBlock(nn.Module):
    def __init__(self, width, heads, mlp_ratio):
        super().__init__()
        self.attn = DiTAttention(width, heads)
        self.mlp = DiTMlp(width, int(width * mlp_ratio))
        self.adaLN_modulation = nn.Sequential(nn.SiLU(), nn.Linear(width, 6 * width))

    def forward(self, x, c):
        shift1, scale1, gate1, shift2, scale2, gate2 = self.adaLN_modulation(c).chunk(6, dim=1)
        x = x + gate1[:, None] * self.attn(norm_modulated(x, shift1, scale1))
        return x + gate2[:, None] * self.mlp(norm_modulated(x, shift2, scale2))


class DiTFinal(nn.Module):
    def __init__(self, width, patch, out_channels):
        super().__init__()
        self.linear = nn.Linear(width, patch * patch * out_channels)
        self.adaLN_modulation = nn.Sequential(nn.SiLU(), nn.Linear(width, 2 * width))

    def forward(self, x, c):
        shift, scale = self.adaLN_modulation(c).chunk(2, dim=1)
        return self.linear(norm_modulated(x, shift, scale))


class DiT(nn.Module):
    """y: class index; the row `num_classes` of the table is the null class (classifier-free)."""

    def __init__(self, c):
        super().__init__()
        width = c["hidden_size"]
        self.patch = c["patch_size"]
        self.side = c["input_size"] // self.patch
        self.out_channels = c["in_channels"] * (2 if c["learn_sigma"] else 1)
        self.x_embedder = nn.Module()
        self.x_embedder.proj = nn.Conv2d(c["in_channels"], width, self.patch, self.patch)
        self.t_embedder = DiTTimestep(width)
        self.y_embedder = nn.Module()
        self.y_embedder.embedding_table = nn.Embedding(c["num_classes"] + 1, width)
        self.register_buffer("pos_embed", dit_pos_embed(width, self.side))
        blocks = [DiTBlock(width, c["num_heads"], c["mlp_ratio"]) for _ in range(c["depth"])]
        self.blocks = nn.ModuleList(blocks)
        self.final_layer = DiTFinal(width, self.patch, self.out_channels)

    def forward(self, x, t, y):
        tokens = self.x_embedder.proj(x).flatten(2).transpose(1, 2) + self.pos_embed
        c = self.t_embedder(t, x.dtype) + self.y_embedder.embedding_table(y)
        for block in self.blocks:
            tokens = block(tokens, c)
        p = self.patch
        out = self.final_layer(tokens, c).view(-1, self.side, self.side, p, p, self.out_channels)
        out = out.permute(0, 5, 1, 3, 2, 4)  # [N, C, row, p, column, p]
        return out.reshape(x.shape[0], self.out_channels, self.side * p, self.side * p)


class ConvPair(nn.Module):
    """relu(conv1 x + p), relu(conv2 . + p) with p = time_proj(emb) per sample and channel."""

    def __init__(self, cin, cout, emb):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, padding=1)
        self.conv2 = nn.Conv2d(cout, cout, 3, padding=1)
        self.time_proj = nn.Linear(emb, cout)

    def forward(self, x, emb):
        p = self.time_proj(emb)[:, :, None, None]
        return F.relu(self.conv2(F.relu(self.conv1(x) + p)) + p)


class CS179(nn.Module):
    """28x28x1 U-Net, 1 424 321 parameters in 40 tensors; t is the raw time argument (ln sigma)."""

    def __init__(self):
        super().__init__()
        emb = 128
        unet = self.unet = nn.Module()
        unet.time_emb = nn.Module()
        unet.time_emb.mlp = nn.Sequential(
            nn.Linear(emb, 4 * emb), nn.SiLU(), nn.Linear(4 * emb, emb)
        )
        unet.enc_blocks = nn.ModuleList([ConvPair(1, 64, emb), ConvPair(64, 128, emb)])
        unet.bottleneck = ConvPair(128, 128, emb)
        unet.dec_blocks = nn.ModuleList([ConvPair(256, 128, emb), ConvPair(192, 64, emb)])
        for block, channels in zip(unet.dec_blocks, (128, 64)):
            block.upsample = nn.ConvTranspose2d(channels, channels, 2, stride=2)
        unet.out_conv = nn.Conv2d(64, 1, 1)

    def forward(self, x, t):
        unet, half = self.unet, 64
        i = torch.arange(half, dtype=x.dtype)
        angle = t.to(x.dtype)[:, None] * torch.exp(-math.log(10000.0) * i / (half - 1))
        emb = unet.time_emb.mlp(torch.cat([angle.sin(), angle.cos()], dim=1))
        skips = []
        for block in unet.enc_blocks:
            x = F.max_pool2d(block(x, emb), 2)
            skips.append(x)
        x = unet.bottleneck(x, emb)
        for block in unet.dec_blocks:
            x = block.upsample(block(torch.cat([x, skips.pop()], dim=1), emb))
        return unet.out_conv(x)
