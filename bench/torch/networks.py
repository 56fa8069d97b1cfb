"""SongUNet (DDPM++) and the ADM U-Nets in plain torch, written for speed: the baseline networks.

Parameter names and layouts are those of the published checkpoints, so that the golden vectors
check these modules too (check_networks.py). Attention goes through scaled_dot_product_attention on
token matrices; resampling with the filter [1,1] is average pooling and nearest repetition.
"""

import math

import torch
from torch import nn
from torch.nn import functional as F


def sinusoid(t, channels, last_included):
    """[cos, sin] of t * 10000^(-i/(half - last_included)), [N, channels]."""
    half = channels // 2
    i = torch.arange(half, dtype=torch.float32, device=t.device)
    angle = t.float()[:, None] * torch.exp(i * (-math.log(10000.0) / (half - last_included)))
    return torch.cat([angle.cos(), angle.sin()], dim=1)


def attend(x, weight, bias, heads, order):
    """Self-attention of an NCHW image before the output projection.

    weight [3C, C]; `order` says how its rows are laid out: "hc3" (EDM), "h3c" (ADM, legacy) or
    "3hc" (ADM, new). The rows are brought to the last: tiny, and leaves q, k, v dense.
    """
    n, c, height, width = x.shape
    head = c // heads
    shape, axes = {"hc3": ((heads, head, 3), (2, 0, 1)), "h3c": ((heads, 3, head), (1, 0, 2)),
                   "3hc": ((3, heads, head), (0, 1, 2))}[order]
    weight = weight.reshape(*shape, c).permute(*axes, 3).reshape(3 * c, c)
    bias = bias.reshape(shape).permute(axes).reshape(3 * c)
    tokens = x.permute(0, 2, 3, 1).reshape(n, height * width, c)
    qkv = F.linear(tokens, weight, bias).view(n, height * width, 3, heads, head)
    q, k, v = qkv.permute(2, 0, 3, 1, 4)
    out = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, height, width, c)
    return out.permute(0, 3, 1, 2)


def conv(cin, cout, size=3):
    return nn.Conv2d(cin, cout, size, padding=size // 2)


def group_norm(channels, eps):
    return nn.GroupNorm(min(32, channels // 4), channels, eps=eps)


def resampled(x, how):
    """`how`: None, "down" or "up"."""
    if how == "down":
        return F.avg_pool2d(x, 2)
    return F.interpolate(x, scale_factor=2, mode="nearest") if how else x


class SongBlock(nn.Module):
    """Residual block of DDPM++: additive embedding, everything times sqrt(1/2)."""

    def __init__(self, cin, cout, emb, resample=None, attention=False):
        super().__init__()
        self.cin, self.resample, self.attention = cin, resample, attention
        self.norm0, self.conv0 = group_norm(cin, 1e-6), conv(cin, cout)
        self.affine = nn.Linear(emb, cout)
        self.norm1, self.conv1 = group_norm(cout, 1e-6), conv(cout, cout)
        self.skip = conv(cin, cout, 1) if cin != cout or resample else None
        if attention:
            self.norm2, self.qkv = group_norm(cout, 1e-6), conv(cout, 3 * cout, 1)
            self.proj = conv(cout, cout, 1)

    def forward(self, x, emb):
        h = self.conv0(resampled(F.silu(self.norm0(x)), self.resample))
        h = F.silu(self.norm1(h + self.affine(emb)[:, :, None, None]))
        x = self.skip(resampled(x, self.resample)) if self.skip else x
        x = (self.conv1(h) + x) * math.sqrt(0.5)
        if self.attention:
            a = attend(self.norm2(x), self.qkv.weight.flatten(1), self.qkv.bias, 1, "hc3")
            x = (self.proj(a) + x) * math.sqrt(0.5)
        return x


class SongUNet(nn.Module):
    """c: the fields of the golden case songunet_ddpmpp."""

    def __init__(self, c):
        super().__init__()
        mc, levels, blocks = c["model_channels"], len(c["channel_mult"]), c["num_blocks"]
        emb, self.mc, self.label_dim = mc * c["channel_mult_emb"], mc, c["label_dim"]
        self.map_label = nn.Linear(c["label_dim"], mc) if c["label_dim"] else None
        self.map_augment = nn.Linear(c["augment_dim"], mc, bias=False) if c["augment_dim"] else None
        self.map_layer0, self.map_layer1 = nn.Linear(mc, emb), nn.Linear(emb, emb)
        self.enc, self.dec, skips = nn.ModuleDict(), nn.ModuleDict(), [mc]
        ch = mc
        for level, mult in enumerate(c["channel_mult"]):
            res = c["img_resolution"] >> level
            if level == 0:
                self.enc[f"{res}x{res}_conv"] = conv(c["in_channels"], mc)
            else:
                self.enc[f"{res}x{res}_down"] = SongBlock(ch, ch, emb, "down")
                skips.append(ch)
            for i in range(blocks):
                attention = res in c["attn_resolutions"]
                self.enc[f"{res}x{res}_block{i}"] = SongBlock(ch, mc * mult, emb, None, attention)
                ch = mc * mult
                skips.append(ch)
        for level in reversed(range(levels)):
            res = c["img_resolution"] >> level
            if level == levels - 1:
                self.dec[f"{res}x{res}_in0"] = SongBlock(ch, ch, emb, attention=True)
                self.dec[f"{res}x{res}_in1"] = SongBlock(ch, ch, emb)
            else:
                self.dec[f"{res}x{res}_up"] = SongBlock(ch, ch, emb, "up")
            for i in range(blocks + 1):
                attention = i == blocks and res in c["attn_resolutions"]
                cout = mc * c["channel_mult"][level]
                block = SongBlock(ch + skips.pop(), cout, emb, None, attention)
                self.dec[f"{res}x{res}_block{i}"] = block
                ch = cout
        res = c["img_resolution"]
        self.dec[f"{res}x{res}_aux_norm"] = group_norm(ch, 1e-6)
        self.dec[f"{res}x{res}_aux_conv"] = conv(ch, c["out_channels"])

    def forward(self, x, noise_labels, class_labels=None, augment_labels=None):
        cos, sin = sinusoid(noise_labels, self.mc, 1).to(x.dtype).chunk(2, dim=1)
        emb = torch.cat([sin, cos], dim=1)
        if self.map_label is not None:
            emb = emb + self.map_label(class_labels * math.sqrt(self.label_dim))
        if self.map_augment is not None and augment_labels is not None:
            emb = emb + self.map_augment(augment_labels)
        emb = F.silu(self.map_layer1(F.silu(self.map_layer0(emb))))
        skips = []
        for block in self.enc.values():
            x = block(x, emb) if isinstance(block, SongBlock) else block(x)
            skips.append(x)
        for block in self.dec.values():
            if isinstance(block, SongBlock):
                joined = torch.cat([x, skips.pop()], 1) if block.cin != x.shape[1] else x
                x = block(joined, emb)
            else:
                x = block(x) if isinstance(block, nn.GroupNorm) else block(F.silu(x))
        return x


class AdmRes(nn.Module):
    """Residual block of ADM. With scale_shift the embedding scales and shifts the second norm."""

    def __init__(self, cin, cout, emb, scale_shift=False, resample=None):
        super().__init__()
        self.scale_shift, self.resample = scale_shift, resample
        self.in_layers = nn.Sequential(nn.GroupNorm(32, cin), nn.SiLU(), conv(cin, cout))
        self.emb_layers = nn.Sequential(nn.SiLU(), nn.Linear(emb, cout * (1 + scale_shift)))
        self.out_layers = nn.Sequential(
            nn.GroupNorm(32, cout), nn.SiLU(), nn.Identity(), conv(cout, cout)
        )
        self.skip_connection = conv(cin, cout, 1) if cin != cout else nn.Identity()

    def forward(self, x, emb):
        h = self.in_layers[2](resampled(self.in_layers[1](self.in_layers[0](x)), self.resample))
        e = self.emb_layers(emb)[:, :, None, None]
        if self.scale_shift:
            scale, shift = e.chunk(2, dim=1)
            h = self.out_layers[0](h) * (1 + scale) + shift
            h = self.out_layers[3](F.silu(h))
        else:
            h = self.out_layers(h + e)
        return self.skip_connection(resampled(x, self.resample)) + h


class AdmAttention(nn.Module):
    def __init__(self, channels, heads, order):
        super().__init__()
        self.heads, self.order = heads, order
        self.norm = nn.GroupNorm(32, channels)
        self.qkv = nn.Conv1d(channels, 3 * channels, 1)
        self.proj_out = nn.Conv1d(channels, channels, 1)

    def forward(self, x, _):
        h = attend(self.norm(x), self.qkv.weight.flatten(1), self.qkv.bias, self.heads, self.order)
        return x + F.conv2d(h, self.proj_out.weight[..., None], self.proj_out.bias)


class AdmDown(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.op = nn.Conv2d(channels, channels, 3, stride=2, padding=1)

    def forward(self, x, _):
        return self.op(x)


class AdmUp(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = conv(channels, channels)

    def forward(self, x, _):
        return self.conv(F.interpolate(x, scale_factor=2, mode="nearest"))


class AdmFirst(nn.Conv2d):
    def forward(self, x, _):
        return super().forward(x)


class AdmUNet(nn.Module):
    """c: the fields of the golden cases adm_plain and adm_full; what is missing is off."""

    def __init__(self, c):
        super().__init__()
        mc, res = c["model_channels"], c["image_size"]
        self.mc, emb = mc, 4 * mc
        self.time_embed = nn.Sequential(nn.Linear(mc, emb), nn.SiLU(), nn.Linear(emb, emb))
        self.label_emb = nn.Embedding(c["num_classes"], emb) if c.get("num_classes") else None
        order = "3hc" if c.get("use_new_attention_order") else "h3c"
        updown, affine = c.get("resblock_updown", False), c.get("use_scale_shift_norm", False)

        def attention(ch):
            heads = ch // c["num_head_channels"] if c["num_head_channels"] else c["num_heads"]
            return AdmAttention(ch, heads, order)

        def block(cin, cout, how=None):
            return AdmRes(cin, cout, emb, affine, how)

        ch = mc * c["channel_mult"][0]
        inputs, skips = [[AdmFirst(c["in_channels"], ch, 3, padding=1)]], [ch]
        for level, mult in enumerate(c["channel_mult"]):
            for _ in range(c["num_res_blocks"]):
                inputs.append([block(ch, mult * mc)])
                ch = mult * mc
                inputs[-1] += [attention(ch)] if res in c["attention_resolutions"] else []
                skips.append(ch)
            if level + 1 < len(c["channel_mult"]):
                inputs.append([block(ch, ch, "down") if updown else AdmDown(ch)])
                skips.append(ch)
                res //= 2
        middle = [block(ch, ch), attention(ch), block(ch, ch)]
        outputs = []
        for level, mult in reversed(list(enumerate(c["channel_mult"]))):
            for i in range(c["num_res_blocks"] + 1):
                outputs.append([block(ch + skips.pop(), mult * mc)])
                ch = mult * mc
                outputs[-1] += [attention(ch)] if res in c["attention_resolutions"] else []
                if level and i == c["num_res_blocks"]:
                    outputs[-1].append(block(ch, ch, "up") if updown else AdmUp(ch))
                    res *= 2
        self.input_blocks = nn.ModuleList(nn.ModuleList(b) for b in inputs)
        self.middle_block = nn.ModuleList(middle)
        self.output_blocks = nn.ModuleList(nn.ModuleList(b) for b in outputs)
        self.out = nn.Sequential(nn.GroupNorm(32, ch), nn.SiLU(), conv(ch, c["out_channels"]))

    def forward(self, x, t, y=None):
        emb, skips = self.time_embed(sinusoid(t, self.mc, 0).to(x.dtype)), []
        if self.label_emb is not None:
            emb = emb + self.label_emb(y)
        for block in self.input_blocks:
            for layer in block:
                x = layer(x, emb)
            skips.append(x)
        for layer in self.middle_block:
            x = layer(x, emb)
        for block in self.output_blocks:
            x = torch.cat([x, skips.pop()], dim=1)
            for layer in block:
                x = layer(x, emb)
        return self.out(x)
