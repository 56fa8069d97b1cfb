// rope: rotary position embedding (Su et al. 2021, RoFormer, section 3.4): the elements of a head
// are pairs, and each pair is rotated by the angle of its token's position. Scores of rotated
// queries and keys depend on the distance of their positions only.
#pragma once

#include "ir/op.h"

namespace ebb::ops {

struct Rope {
  // Pairs are elements i and i + P (transformers' LLaMA, `rotate_half`); else 2 i and 2 i + 1
  // (RoFormer; diffusers' Flux, `apply_rotary_emb` with `use_real_unbind_dim` -1).
  bool half_split = false;
  bool inverse = false;  // rotates by the negative angles: the transpose, hence the gradient
  void fields(auto&& f) {
    f("half_split", half_split);
    f("inverse", inverse);
  }
};

namespace def {
const OpDef& rope();
}

// x [N,T,...,D], as attention reads it [N,T,A,D] or [N,T,3,A,D]; cos and sin [T,P] or [N|1,T,P] of
// the angles, floats of any dtype -> y as x:
//     y_a = x_a cos - x_b sin,  y_b = x_a sin + x_b cos
// for the P pairs (a, b). The elements from 2 P on stay as they are (partial rotation).
Value rope(Value x, Value cos, Value sin, const Rope& attrs = {});

}  // namespace ebb::ops
