"""PyTorch's steps of fine-tuning on a GPU: the baseline of train_step/sd15 and /sdxl_lora, and of
`ebb train --train unet,text_encoder` for the networks of tools/box (box).

    python bench/torch/finetune_step.py sdxl_lora --modes compile_graph blocks_graph

A step is what gpu_step.py says, on latents and text states: sd15 trains all weights, in f32 under
bf16 autocast; sdxl_lora trains a LoRA of rank 16 beside every linear layer of the transformers
(base(x) + up(down(x))), in a network that is frozen in bf16 and computes in it (faster than under
autocast, which widens norms). Modes are those of gpu_step.py.
"""

import torch
from torch import nn
from torch.nn import functional as F

import components
import gpu_step
import ldm
import modes
from gpu_denoise import SD15, SDXL, TINY_XL

TOKENS = 77
RANK = 16
BOX = dict(SD15, model_channels=128, channel_mult=[1, 2], num_res_blocks=1, input_depths=[1, 0],
           output_depths=[0, 0, 1, 1], num_heads=0, num_head_channels=64, context=128)
BOX_TEXT = dict(components.CLIP_L, width=128, layers=4, heads=2, hidden=512)
# network's fields, batch, shape of latents, rank of the LoRA (0: all weights are trained)
CASES = {
    "sd15": (SD15, 16, (4, 64, 64), 0),
    "sdxl_lora": (SDXL, 4, (4, 128, 128), RANK),
    "box": (BOX, 256, (4, 16, 16), 0),
    "tiny_lora": (TINY_XL, 2, (4, 8, 16), RANK),
    "tiny": (TINY_XL, 2, (4, 8, 16), 0),
}


class Lora(nn.Module):
    """A linear layer that stays, and the product of two factors beside it (Hu et al. 2021)."""

    def __init__(self, base, rank):
        super().__init__()
        self.base = base
        where = {"device": base.weight.device}
        self.down = nn.Parameter(torch.randn(rank, base.in_features, **where) / base.in_features)
        self.up = nn.Parameter(torch.zeros(base.out_features, rank, **where))

    def forward(self, x):
        return self.base(x) + F.linear(F.linear(x, self.down.to(x.dtype)), self.up.to(x.dtype))


class Transformer(ldm.Transformer):
    """With its 1x1 layers called as modules, so that they may have a LoRA."""

    def forward(self, x, emb, text, size=None):
        n, c, height, width = x.shape
        h = self.proj_in(self.norm(x).permute(0, 2, 3, 1).reshape(n, height * width, c))
        for block in self.transformer_blocks:
            h = block(h, text)
        return x + self.proj_out(h).reshape(n, height, width, c).permute(0, 3, 1, 2)


def with_lora(net, rank):
    net.requires_grad_(False)
    for module in net.modules():
        if isinstance(module, ldm.Transformer):
            module.__class__ = Transformer
            for inner in list(module.modules()):
                for name, layer in inner.named_children():
                    if isinstance(layer, nn.Linear):
                        setattr(inner, name, Lora(layer, rank))
    return net


class WithText(nn.Module):
    """A U-Net and the text encoder whose states it reads, trained together."""

    def __init__(self, unet, text):
        super().__init__()
        self.unet, self.text = unet, text

    def forward(self, x, t, tokens):
        return self.unet(x, t, self.text(tokens))


class Training(gpu_step.Training):
    """Of a checkpoint's network, and of a LoRA alone where the case has a rank."""

    def __init__(self, case, device, batch=0):
        torch.manual_seed(0)
        self.config, own_batch, image, rank = CASES[case]
        c, count, layout = self.config, batch or own_batch, torch.channels_last
        self.dtype = torch.bfloat16 if rank else torch.float32
        net = ldm.LdmUNet(c).to(device)
        if rank:
            net = with_lora(net.to(self.dtype), rank)
        if c is BOX:
            net = WithText(net, components.ClipText(BOX_TEXT).to(device))
        self.net = net.to(memory_format=layout)
        self.x = torch.randn(count, *image, device=device).contiguous(memory_format=layout)

        def draw(*shape):
            return torch.randn(count, *shape, device=device, dtype=self.dtype)

        self.y = (draw(TOKENS, c["context"]),)
        if c is BOX:
            self.y = (torch.randint(0, BOX_TEXT["vocabulary"], (count, TOKENS), device=device),)
        if c["vector"]:
            pooled = c["vector"] - c["sizes"] * c["size_channels"]
            self.y += (draw(pooled), draw(c["sizes"]).float())
        self.prepare(device)


class Steps(gpu_step.Steps):
    training_of = Training


if __name__ == "__main__":
    gpu_step.BLOCKS += (ldm.Block, ldm.Res, components.ClipLayer)
    torch._dynamo.config.cache_size_limit = 64  # shapes of blocks
    modes.main(__doc__, CASES, Steps())
