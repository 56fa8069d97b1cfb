"""First halves of feed-forward layers: a linear layer and its activation, gated or not. Where the
layer is gated, the second half of the columns is the gate."""

from ...products import activated, gated
from ...recipe import recipe


def _of(name, digest):
    return dict(classes=(f"diffusers.models.activations:{name}",), digests=(digest,))


@recipe("modules", **_of("GEGLU", "9bbbb6342f4d"))
def diffusers_geglu(self, hidden_states, *args, **kwargs):
    return gated(hidden_states, self.proj, "gelu", "second")


@recipe("modules", **_of("SwiGLU", "9e720a8f677b"))
def diffusers_swiglu(self, hidden_states):
    return gated(hidden_states, self.proj, "silu", "second")


@recipe("modules", parts=("forward", "gelu"), **_of("GELU", "a61e79f6dd7f"))
def diffusers_gelu(self, hidden_states):
    return activated(hidden_states, self.proj, _GELU[self.approximate])


_GELU = {"tanh": "gelu_tanh", "none": "gelu"}


# "geglu-approximate", though nothing is gated in it.
@recipe("modules", **_of("ApproximateGELU", "8393388e45ab"))
def diffusers_approximate_gelu(self, x):
    return activated(x, self.proj, "gelu_quick")
