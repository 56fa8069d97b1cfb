"""The U-Nets of Stable Diffusion 1, 2 and XL in plain torch, written for speed: baseline networks.

Parameter names are those of the original checkpoints, so that the golden vectors check this module
too (check_networks.py). Attention goes through scaled_dot_product_attention; q, k and v of
self-attention come from one GEMM once fuse() has put their weights together.
"""

import torch
from torch import nn
from torch.nn import functional as F

from networks import conv, sinusoid


class Res(nn.Module):
    def __init__(self, cin, cout, emb, groups):
        super().__init__()
        self.in_layers = nn.Sequential(nn.GroupNorm(groups, cin), nn.SiLU(), conv(cin, cout))
        self.emb_layers = nn.Sequential(nn.SiLU(), nn.Linear(emb, cout))
        self.out_layers = nn.Sequential(
            nn.GroupNorm(groups, cout), nn.SiLU(), nn.Identity(), conv(cout, cout))
        self.skip_connection = conv(cin, cout, 1) if cin != cout else nn.Identity()

    def forward(self, x, emb, text, size=None):
        h = self.in_layers(x) + self.emb_layers(emb)[:, :, None, None]
        return self.skip_connection(x) + self.out_layers(h)


class Attention(nn.Module):
    def __init__(self, width, context, heads):
        super().__init__()
        self.heads = heads
        self.to_q = nn.Linear(width, width, bias=False)
        self.to_k = nn.Linear(context, width, bias=False)
        self.to_v = nn.Linear(context, width, bias=False)
        self.to_out = nn.Sequential(nn.Linear(width, width))
        self.qkv = None

    def fuse(self):
        layers = [self.to_q, self.to_k, self.to_v]
        if self.to_k.in_features == self.to_q.in_features:
            self.qkv = torch.cat([layer.weight for layer in layers])

    def forward(self, x, context=None):
        n, t, c = x.shape
        if context is None and self.qkv is not None:
            q, k, v = F.linear(x, self.qkv).view(n, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        else:
            context = x if context is None else context
            q, k, v = (y.view(n, -1, self.heads, c // self.heads).transpose(1, 2)
                       for y in (self.to_q(x), self.to_k(context), self.to_v(context)))
        out = F.scaled_dot_product_attention(q, k, v)
        return self.to_out(out.transpose(1, 2).reshape(n, t, c))


class Geglu(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.proj = nn.Linear(width, 8 * width)

    def forward(self, x):
        value, gate = self.proj(x).chunk(2, dim=-1)
        return value * F.gelu(gate)


class FeedForward(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.net = nn.Sequential(Geglu(width), nn.Identity(), nn.Linear(4 * width, width))

    def forward(self, x):
        return self.net(x)


class Block(nn.Module):
    def __init__(self, width, context, heads):
        super().__init__()
        self.attn1, self.attn2 = Attention(width, width, heads), Attention(width, context, heads)
        self.ff = FeedForward(width)
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(width) for _ in range(3))

    def forward(self, x, text):
        x = x + self.attn1(self.norm1(x))
        x = x + self.attn2(self.norm2(x), text)
        return x + self.ff(self.norm3(x))


class Transformer(nn.Module):
    def __init__(self, width, depth, c):
        super().__init__()
        head = c["num_head_channels"]
        heads = width // head if head else c["num_heads"]
        project = conv if c["conv_projection"] else lambda i, o, _: nn.Linear(i, o)
        self.norm = nn.GroupNorm(c["groups"], width, eps=1e-6)
        self.proj_in, self.proj_out = project(width, width, 1), project(width, width, 1)
        self.transformer_blocks = nn.ModuleList(
            Block(width, c["context"], heads) for _ in range(depth))

    def forward(self, x, emb, text, size=None):
        n, c, height, width = x.shape
        h = self.norm(x).permute(0, 2, 3, 1).reshape(n, height * width, c)
        h = F.linear(h, self.proj_in.weight.view(c, c), self.proj_in.bias)
        for block in self.transformer_blocks:
            h = block(h, text)
        h = F.linear(h, self.proj_out.weight.view(c, c), self.proj_out.bias)
        return x + h.reshape(n, height, width, c).permute(0, 3, 1, 2)


class First(nn.Conv2d):
    def forward(self, x, emb, text, size=None):
        return super().forward(x)


class Down(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.op = nn.Conv2d(channels, channels, 3, stride=2, padding=1)

    def forward(self, x, emb, text, size=None):
        return self.op(x)


class Up(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = conv(channels, channels)

    def forward(self, x, emb, text, size=None):
        return self.conv(F.interpolate(x, size=size, mode="nearest"))


class LdmUNet(nn.Module):
    """c: the fields of the golden cases of tests/golden/ldm."""

    def __init__(self, c):
        super().__init__()
        mc, blocks, levels = c["model_channels"], c["num_res_blocks"], len(c["channel_mult"])
        self.c, emb = c, 4 * mc

        def mlp(cin):
            return nn.Sequential(nn.Linear(cin, emb), nn.SiLU(), nn.Linear(emb, emb))

        def stage(cin, cout, depth):
            first = [Res(cin, cout, emb, c["groups"])]
            return first + ([Transformer(cout, depth, c)] if depth else [])

        self.time_embed = mlp(mc)
        if c["guidance_channels"]:
            self.time_embed.cond_proj = nn.Linear(c["guidance_channels"], mc, bias=False)
        self.label_emb = nn.Sequential(mlp(c["vector"])) if c["vector"] else None
        ch, skips, depths = mc, [mc], list(c["input_depths"])
        inputs = [[First(c["in_channels"] + c["extra_channels"], mc, 3, padding=1)]]
        for level, mult in enumerate(c["channel_mult"]):
            for _ in range(blocks):
                inputs.append(stage(ch, mult * mc, depths.pop(0)))
                ch = mult * mc
                skips.append(ch)
            if level + 1 < levels:
                inputs.append([Down(ch)])
                skips.append(ch)
        middle = stage(ch, ch, c["middle_depth"])[:2 * c["middle_blocks"]]
        middle += [Res(ch, ch, emb, c["groups"])] if c["middle_blocks"] > 1 else []
        outputs, depths = [], list(c["output_depths"])
        for level, mult in reversed(list(enumerate(c["channel_mult"]))):
            for i in range(blocks + 1):
                outputs.append(stage(ch + skips.pop(), mult * mc, depths.pop(0)))
                ch = mult * mc
                outputs[-1] += [Up(ch)] if level and i == blocks else []
        self.input_blocks = nn.ModuleList(nn.ModuleList(b) for b in inputs)
        self.middle_block = nn.ModuleList(middle)
        self.output_blocks = nn.ModuleList(nn.ModuleList(b) for b in outputs)
        self.out = nn.Sequential(nn.GroupNorm(c["groups"], ch), nn.SiLU(),
                                 conv(ch, c["in_channels"]))

    def fuse(self):
        """Puts the weights of q, k and v together, for inference."""
        for module in self.modules():
            if isinstance(module, Attention):
                module.fuse()

    def embedding(self, x, t, guidance, pooled, size):
        c = self.c
        e = sinusoid(t, c["model_channels"], 0)
        if c["guidance_channels"]:
            cos, sin = sinusoid(1000 * (guidance - 1), c["guidance_channels"], 1).chunk(2, dim=1)
            e = e + self.time_embed.cond_proj(torch.cat([sin, cos], dim=1).to(x.dtype))
        e = self.time_embed[2](self.time_embed[1](self.time_embed[0](e.to(x.dtype))))
        if self.label_emb is not None:
            numbers = sinusoid(size.reshape(-1), c["size_channels"], 0).reshape(x.shape[0], -1)
            e = e + self.label_emb(torch.cat([pooled, numbers.to(x.dtype)], dim=1))
        return e

    def forward(self, x, t, text, pooled=None, size=None, guidance=None, concat=None):
        emb, skips = self.embedding(x, t, guidance, pooled, size), []
        x = x if concat is None else torch.cat([x, concat], dim=1)
        for block in self.input_blocks:
            for layer in block:
                x = layer(x, emb, text)
            skips.append(x)
        for layer in self.middle_block:
            x = layer(x, emb, text)
        for block in self.output_blocks:
            x = torch.cat([x, skips.pop()], dim=1)
            for layer in block:
                x = layer(x, emb, text, skips[-1].shape[2:] if skips else None)
        return self.out(x)
