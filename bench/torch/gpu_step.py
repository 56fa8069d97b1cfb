"""PyTorch's training steps on a GPU: the baseline of bench/gpu, and a worker for it.

    python bench/torch/gpu_step.py unet64 --modes eager compile compile_graph

A step is: zero_grad, drawing timesteps and noise, q_sample, forward, mean square error, backward,
fused AdamW; bf16 autocast with f32 weights; U-Nets in channels_last. Modes:
  eager          as written
  compile        torch.compile of everything up to the loss
  compile_graph  that, and the whole step with the optimiser captured as one CUDA graph
  overhead       torch.compile(mode="reduce-overhead"), the optimiser outside
  autotune       torch.compile(mode="max-autotune-no-cudagraphs"), captured as one CUDA graph
  blocks_graph   each block compiled by itself (fast to compile), captured as one CUDA graph
  blocks_autotune  that with mode="max-autotune-no-cudagraphs"
Under torchrun the network is in DistributedDataParallel, each rank has the case's batch, and rank 0
alone prints. One JSON line a mode. With
--serve it then measures the fastest mode again for every line of input.
"""

import os

import torch

import dit
import modes
import networks

UNET64 = dict(image_size=64, in_channels=3, out_channels=3, model_channels=64, num_res_blocks=2,
              channel_mult=[1, 2, 3, 4], attention_resolutions=[16, 8], num_head_channels=32)
ADM64 = dict(image_size=64, in_channels=3, out_channels=3, model_channels=192, num_res_blocks=3,
             channel_mult=[1, 2, 3, 4], attention_resolutions=[32, 16, 8], num_head_channels=64,
             num_classes=1000, use_scale_shift_norm=True, resblock_updown=True,
             use_new_attention_order=True)
DIT_XL2 = dict(input_size=32, patch_size=2, in_channels=4, hidden_size=1152, depth=28,
               num_heads=16, mlp_ratio=4.0, num_classes=1000, learn_sigma=False)
TINY_ADM = dict(ADM64, image_size=16, model_channels=32, num_res_blocks=1, channel_mult=[1, 2],
                attention_resolutions=[8], num_head_channels=16)
TINY_DIT = dict(DIT_XL2, input_size=8, hidden_size=32, depth=2, num_heads=2)
# network, config, batch, shape of an image, whether it is a U-Net
CASES = {
    "unet64": (networks.AdmUNet, UNET64, 32, (3, 64, 64), True),
    "adm64": (networks.AdmUNet, ADM64, 32, (3, 64, 64), True),
    "dit_xl2": (dit.DiT, DIT_XL2, 64, (4, 32, 32), False),
    "tiny_adm": (networks.AdmUNet, TINY_ADM, 2, (3, 16, 16), True),
    "tiny_dit": (dit.DiT, TINY_DIT, 2, (4, 8, 8), False),
}
STEPS = 1000
RANKS = "WORLD_SIZE" in os.environ
BLOCKS = (dit.Block, networks.AdmRes, networks.AdmAttention)


class Training:
    """A network with its data and optimiser; `loss` is what a step differentiates."""

    def __init__(self, case, device, batch=0):
        torch.manual_seed(0)
        build, self.config, own_batch, image, unet = CASES[case]
        layout = torch.channels_last if unet else torch.contiguous_format
        self.net = build(self.config).to(device).to(memory_format=layout)
        if RANKS:
            self.net = distributed(self.net)
        count = batch or own_batch
        self.x = torch.randn(count, *image, device=device).contiguous(memory_format=layout)
        classes = self.config.get("num_classes")
        self.y = (torch.randint(0, classes, (count,), device=device),) if classes else ()
        self.dtype = torch.float32
        self.prepare(device)

    def prepare(self, device):
        """Noise levels, and the optimiser of what is trained of self.net."""
        alpha = (1 - torch.linspace(1e-4, 2e-2, STEPS, dtype=torch.float64)).cumprod(0)
        self.signal = alpha.sqrt().float().to(device)
        self.noise = (1 - alpha).sqrt().float().to(device)
        self.device = device
        trained = [p for p in self.net.parameters() if p.requires_grad]
        self.update = torch.optim.AdamW(trained, lr=1e-4, fused=True,
                                        capturable=device == "cuda")
        self.compiled = {}

    def compile(self, **how):
        """The loss, compiled once for every `how`."""
        key = str(how)
        if key not in self.compiled:
            self.compiled[key] = torch.compile(self.loss, **how)
        return self.compiled[key]

    def loss(self, x, y):
        t = torch.randint(0, STEPS, (x.shape[0],), device=x.device)
        noise = torch.randn_like(x)
        noisy = (self.signal[t].view(-1, 1, 1, 1) * x + self.noise[t].view(-1, 1, 1, 1) * noise)
        with torch.autocast(self.device, torch.bfloat16, enabled=self.dtype == torch.float32):
            out = self.net(noisy.to(self.dtype), t, *y)
        return torch.nn.functional.mse_loss(out.float(), noise)


def distributed(net):
    """In DistributedDataParallel, made on a side stream so that its steps may be captured."""
    with torch.cuda.stream(torch.cuda.Stream()):
        net = torch.nn.parallel.DistributedDataParallel(
            net, gradient_as_bucket_view=True, static_graph=True)
    torch.cuda.synchronize()
    return net


def plain_step(training, loss, before=lambda: None):
    def step():
        before()
        training.update.zero_grad(set_to_none=True)
        value = loss(training.x, training.y)
        value.backward()
        training.update.step()
        return value

    return step


def captured(training, loss):
    """The whole step as one CUDA graph. DistributedDataParallel makes its buckets anew in its first
    ten steps, and NCCL's own thread asks for events during the capture."""
    how = {"times": 11, "error_mode": "thread_local"} if RANKS else {}
    return modes.captured(plain_step(training, loss),
                          lambda: training.update.zero_grad(set_to_none=True), **how)


def make_step(training, mode):
    if mode == "eager":
        return plain_step(training, training.loss)
    if mode == "eager_graph":
        return captured(training, training.loss)
    if mode == "compile":
        return plain_step(training, training.compile())
    if mode == "compile_graph":
        return captured(training, training.compile())
    if mode == "overhead":
        return plain_step(training, training.compile(mode="reduce-overhead"),
                          torch.compiler.cudagraph_mark_step_begin)
    if mode == "autotune":
        return captured(training, training.compile(mode="max-autotune-no-cudagraphs"))
    how = {"blocks_graph": {}, "blocks_autotune": {"mode": "max-autotune-no-cudagraphs"}}[mode]
    for module in training.net.modules():
        if isinstance(module, BLOCKS):
            module.compile(**how)
    return captured(training, training.loss)


class Steps:
    """Training steps as modes.main() measures them."""

    bench = "train_step"
    training_of = Training

    def __init__(self):
        torch.backends.cuda.matmul.allow_tf32 = True
        torch.backends.cudnn.allow_tf32 = True
        self.training = None
        if RANKS:
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
            torch.distributed.init_process_group("nccl")

    def prepare(self, args, mode):
        """(what to measure, facts of it)."""
        if self.training is None or mode.startswith("blocks_"):
            self.training = None  # its memory goes before the next one's comes
            self.training = self.training_of(args.case, args.device, args.batch)
        step = make_step(self.training, mode)
        first = step().item()
        for _ in range(args.warmup):
            last = step()
        return step, {"batch": self.training.x.shape[0],
                      "parameters": sum(p.numel() for p in self.training.net.parameters()),
                      "trained": sum(p.numel() for p in self.training.net.parameters()
                                     if p.requires_grad),
                      "first_loss": first, "last_loss": last.item(),
                      "attention": args.attention or ["default"]}


if __name__ == "__main__":
    modes.main(__doc__, CASES, Steps())
