#include "runtime/chosen_kernel.h"

#include <map>
#include <optional>

#include "base/error.h"
#include "core/out_of_memory.h"
#include "runtime/prepare_use.h"
#include "runtime/supporting_kernels.h"

namespace ebb {

NodeMemory ChosenKernel::memory() const {
  const Kernel* k = choice.kernel;
  NodeMemory m{program.workspace, k->in_place, k->alias, k->cooperative};
  if (k->may_alias)
    m.may_alias = [k, s = sig](size_t out, size_t in) { return k->may_alias(s, out, in); };
  return m;
}

std::vector<ChosenKernel> choose_kernels(const Graph& g, const Context& context) {
  Device& device = *context.device;
  SupportingKernels kernels(device);
  std::optional<Tuner> guess;  // reads the presets
  Tuner& tuner = context.tuner ? *context.tuner : guess.emplace();
  std::vector<Use> uses;
  for (const Node& n : g.nodes()) {
    const Signature s = g.signature(n);
    uses.push_back({kernels.of(s), s});
    require(!uses.back().kernels.empty(), s.op->name, ": ", device.backend(),
            " has no kernel for it  ", s.text(), "  at ", s.at);
  }
  std::vector<Choice> choices;
  try {
    choices = tuner.choose(uses, device, context.poll);
  } catch (const OutOfMemory& e) {
    context.log(str("tuner: measures nothing any more, as memory is short; kernels run by known ",
                    "choices or their best guess  ", e.what()));
    choices = tuner.choose(uses, device, context.poll);
  }
  std::map<std::string, PreparedUse> prepared;  // by signature: equal uses share a program
  std::vector<ChosenKernel> nodes;
  for (size_t i = 0; i < uses.size(); ++i) {
    auto [it, fresh] = prepared.try_emplace(uses[i].sig.text());
    if (fresh) {
      context.poll();
      it->second = prepare_use(uses[i], choices[i], device);
    }
    nodes.push_back({it->second.choice, uses[i].sig, it->second.program});
  }
  tuner.save();
  return nodes;
}

}  // namespace ebb
