// Dialect: what the programs that people know do differently, as data. A sampler asks the dialect;
// nothing else in the code knows the programs.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ebb {

struct Dialect {
  std::string name;
  std::string help;
  // Numbers are drawn in every step of samplers that renew noise, used or not.
  bool draws_unused_churn = false;
  // Ancestral samplers draw in the step to 0 as well.
  bool draws_unused_last = false;
  // On flow models ancestral steps keep x = (1 - sigma) data + sigma noise; else they add noise as
  // if alpha were 1.
  bool flow_ancestral = true;
  // So does res_multistep.
  bool flow_res_ancestral = true;
  // Samplers whose noise is for parts of a step draw for parts that are empty too.
  bool draws_unused_parts = false;
  // Samplers that remember slopes use them in the step to 0 too; else it ends with x = D.
  bool multistep_to_zero = false;
  // ipndm_v weights three and four slopes as if steps were equal.
  bool equal_weights_above_two = false;
  // Samplers for sqrt(alpha_bar) x end at the level of timestep 0 instead of at 0 (their last
  // alpha_bar is the table's first), and leave that factor in.
  bool vp_ends_at_table = false;
  // lcm's D is that of a consistency function: near timestep 0 it becomes x.
  bool lcm_boundary = false;
};

// ebb (our own rules: nothing is drawn in vain, corrected flow steps), kdiff (k-diffusion), comfy
// (ComfyUI), a1111 (Stable Diffusion web UI), diffusers, sdcpp (stable-diffusion.cpp).
const std::vector<Dialect>& all_dialects();
const Dialect& find_dialect(std::string_view name);  // throws Error, suggests the nearest

}  // namespace ebb
