"""A model of the LLaMA family with ebb's kernels, in two ways: inject(), and the layers of
ebb_kernels by transformers' own KernelConfig, where its version of `kernels` is installed.

python llama.py [--checkpoint TinyLlama/TinyLlama-1.1B-Chat-v1.0] [--tokens 1024] [--tiny]
"""

import argparse
import tempfile

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

import ebb_kernels as ek
from compare import before_and_after, device_and_dtype
from ebb_kernels import hub

# TinyLlama 1.1B (Zhang et al. 2024).
CONFIG = dict(
    vocab_size=32000,
    hidden_size=2048,
    intermediate_size=5632,
    num_hidden_layers=22,
    num_attention_heads=32,
    num_key_value_heads=4,
    max_position_embeddings=2048,
)
TINY = dict(
    vocab_size=99,
    hidden_size=128,
    intermediate_size=256,
    num_hidden_layers=2,
    num_attention_heads=2,
    num_key_value_heads=1,
    max_position_embeddings=128,
)


def load(checkpoint, tiny, device, dtype):
    if checkpoint:
        model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=dtype)
    else:
        torch.manual_seed(0)
        model = LlamaForCausalLM(LlamaConfig(**(TINY if tiny else CONFIG))).to(dtype)
    return model.to(device).eval()


def by_kernel_config(model, call, folder):
    """The same by the route of transformers: its layers marked RMSNorm and rotary_pos_emb."""
    from transformers import KernelConfig

    path = hub.write(folder).parent.parent
    layers = {"RMSNorm": f"{path}:RMSNorm", "rotary_pos_emb": f"{path}:RotaryPosEmb"}
    config = KernelConfig(layers, use_local_kernel=True)

    def change():
        model.set_use_kernels(True, config)
        return "KernelConfig: " + ", ".join(layers)

    before_and_after(call, change, lambda: model.set_use_kernels(False))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoint")
    parser.add_argument("--tokens", type=int, default=1024)
    parser.add_argument("--tiny", action="store_true")
    given = parser.parse_args()
    device, dtype = device_and_dtype(given.tiny)
    model = load(given.checkpoint, given.tiny, device, dtype)
    tokens = 64 if given.tiny else given.tokens
    ids = torch.arange(tokens, device=device)[None] % model.config.vocab_size

    def call():
        return model(ids).logits

    before_and_after(call, lambda: ek.inject(model), lambda: ek.restore(model))
    with tempfile.TemporaryDirectory() as folder:
        try:
            by_kernel_config(model, call, folder)
        except (ImportError, ValueError, RuntimeError) as error:
            print(f"KernelConfig is not to be had here: {str(error).splitlines()[0]}")


if __name__ == "__main__":
    main()
