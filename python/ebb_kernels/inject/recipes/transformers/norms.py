"""Norms of transformers, by what their source computes: some 190 classes with a handful of sources,
most of which differ in where they round."""

from ...norms import Dialect, norm

_PARTS = ("forward", "_norm")


def _norms(name, *digests, **dialect):
    norm(name, Dialect(**dialect), package="transformers", parts=_PARTS, digests=digests)


# x rstd rounded to x's dtype, then the weight: LLaMA, Mistral, Qwen, and most others.
_norms("llama_rms_norm", "0c2364ed3cb0", rounding="llama", eps="variance_epsilon")
# The weight in f32, then one rounding: OLMo, and others since.
_norms("olmo_rms_norm", "4315c5be95d6", "b78230691bdc", eps="variance_epsilon")
# Weights around 0, one rounding: Gemma, Qwen3-Next.
_norms("gemma_rms_norm", "8b549fa81926", offset=1.0)
# T5 rounds as diffusers does.
_norms("t5_rms_norm", "bd776c36b673", rounding="diffusers", eps="variance_epsilon")
# One rounding, with and without a weight.
_norms("moshi_rms_norm", "43eeded4de67")
_norms("weightless_rms_norm", "35cacd3129e0", weight=None)
