#include "adapters/adapters.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "adapters/decomposed.h"
#include "base/error.h"
#include "nn/ops.h"
#include "train/model_weights.h"

namespace ebb::adapters {
namespace {

// Where a module's change goes.
struct Placed {
  const FileModule* module = nullptr;
  Target target;
  const StoredWeight* weight = nullptr;  // null: the layer has none
  const StoredWeight* bias = nullptr;
  std::string weight_name, bias_name;

  bool changes_weight() const {
    return std::ranges::any_of(module->module.tensors(), [&](const auto& t) {
      return t.first != module->kind->bias_role && t.first != "alpha" && t.first != "scale";
    });
  }
  bool changes_bias() const {
    return !module->kind->bias_role.empty() && module->module.has(module->kind->bias_role);
  }
};

// The shape that adapters see: [O,I,...].
Shape adapted_shape(const StoredWeight& w) {
  const Shape& s = w.type.shape;
  return w.transposed ? Shape{s[1], s[0]} : s;
}

const StoredWeight* find(const Network& n, const std::string& weight) {
  const auto it = n.weights->weights().find(weight);
  return it == n.weights->weights().end() ? nullptr : &it->second;
}

std::optional<Placed> place_of(const FileModule& m, const std::vector<Network>& networks,
                               const Targets& targets) {
  const auto target = targets.find(m.module.stem());
  if (!target) return {};
  const Network& n = networks[target->network];
  Placed out{&m, *target, nullptr, nullptr, target->layer + ".weight", target->layer + ".bias"};
  out.weight = find(n, out.weight_name);
  out.bias = find(n, out.bias_name);
  if ((out.changes_weight() && !out.weight) || (out.changes_bias() && !out.bias)) return {};
  return out;
}

// Throws Error for what no formula here has.
void check_roles(const FileModule& m, const std::string& file) {
  const auto refuse = [&](const char* role, const char* what) {
    const auto it = m.module.tensors().find(role);
    if (it != m.module.tensors().end())
      fail("adapter: ", what, " are not implemented  '", it->second.name, "'  ", file);
  };
  for (const auto& [role, tensor] : m.module.tensors())
    require(tensor.shape.numel() > 0, "adapter: '", tensor.name, "' has no numbers (it is ",
            tensor.shape, ")  ", file);
  refuse("reshape", "weights of another shape than the network's (.reshape_weight)");
  refuse("down_bias", "biases between both factors");
  require(std::isfinite(m.module.alpha.value_or(1)), "adapter: alpha of '", m.module.stem(),
          "' is not finite  ", file);
}

// alpha / rank of a module for this weight; checks its shapes.
double scale_of(const FileModule& m, const WeightSize& w, const AdapterFile& file) {
  const int64_t rank = m.kind->rank(m.module, w);
  if (m.module.has("scale")) {
    m.module.expect_numel("scale", 1, w);
    return double{file.in_f32(m.module.tensors().find("scale")->second.name).span<float>()[0]};
  }
  if (rank <= 0 || !m.module.alpha) return 1;
  const auto r = static_cast<double>(rank);
  return *m.module.alpha / (m.module.rank_stabilised ? std::sqrt(r) : r);
}

// ---- the term of a weight's sum ------------------------------------------------------------

// A factor by its role, and where it stands in WeightChange::factors.
using Roles = std::vector<std::string>;

Value shaped(Value v, const WeightSize& w) { return ops::reshape(v, {w.out, w.in, w.taps}); }

// The weight with the lengths of its rows, or of its columns, as the file has them:
// V * magnitude / |V|.
Value decomposed(Value v, Value magnitude, bool rows) {
  const Value length = lengths(v, rows ? std::vector<int64_t>{1, 2} : std::vector<int64_t>{0, 2});
  return v * magnitude_scale(ops::reshape(magnitude, length.shape()), length);
}

struct Term {
  const AdapterKind* kind;
  WeightSize size;
  Roles roles;
  bool transposed = false;

  Value operator()(const WeightChange::Operands& in) const {
    const auto to_rows = [&](Value v) {
      return shaped(transposed ? ops::permute(v, {1, 0}) : v, size);
    };
    const auto tensor = [&](std::string_view role) {
      const auto it = std::ranges::find(roles, role);
      if (it == roles.end()) return Value();
      return ops::cast(in.factors[static_cast<size_t>(it - roles.begin())], DType::f32);
    };
    const auto scalar = [&](int64_t k) { return ops::slice(in.scalars, 0, k, k + 1); };
    const Value of_rows = tensor(FileModule::row_magnitude);
    const Value magnitude = of_rows ? of_rows : tensor(FileModule::magnitude);
    const Value weight = in.weight ? to_rows(in.weight) : Value();
    const DeltaInputs inputs{
        .size = size, .scale = scalar(magnitude ? 1 : 0), .weight = weight, .tensor = tensor};
    Value delta = shaped(kind->delta(inputs), size);
    if (magnitude) {
      const Shape s = magnitude.shape();
      const bool rows = of_rows || (s.rank() > 0 && s[0] == size.out);
      delta = (decomposed(weight + delta, magnitude, rows) - weight) * scalar(0);
    }
    Value out = delta;
    if (transposed) out = ops::permute(ops::reshape(out, {size.out, size.in}), {1, 0});
    return in.sum + ops::reshape(out, in.sum.shape());
  }
};

class Changes {
 public:
  Changes(const AdapterUse& use, const std::vector<Network>& networks)
      : use_(use), file_(*use.file), networks_(networks) {}

  void add(const Placed& p, std::vector<WeightChanges>& to) const {
    const double strength = strength_of(p);
    if (strength == 0) return;
    WeightChanges& network = to[p.target.network];
    const Module& m = p.module->module;
    double scale = 1;
    if (p.changes_weight()) {
      const WeightSize size = weight_size(adapted_shape(*p.weight));
      scale = scale_of(*p.module, size, file_);
      network[p.weight_name].push_back(weight_change(p, size, strength, scale));
    }
    if (p.changes_bias()) network[p.bias_name].push_back(bias_change(p, m, strength * scale));
  }

  static void check(const Placed& p, const AdapterFile& file) {
    check_roles(*p.module, file.path());
    const Module& m = p.module->module;
    if (p.changes_weight()) {
      const WeightSize size = weight_size(adapted_shape(*p.weight));
      scale_of(*p.module, size, file);
      if (m.has(FileModule::row_magnitude))
        m.expect_numel(FileModule::row_magnitude, size.out, size);
      if (m.has(FileModule::magnitude)) check_magnitude(m, size);
    }
    if (p.changes_bias())
      m.expect_numel(p.module->kind->bias_role, p.bias->type.shape.numel(),
                     weight_size(p.bias->type.shape));
  }

 private:
  static void check_magnitude(const Module& m, const WeightSize& w) {
    const int64_t n = m.shape(FileModule::magnitude).numel();
    const bool rows = n == w.out && m.size(FileModule::magnitude, 0) == w.out;
    if (!rows && n != w.in)
      m.fail_shape(FileModule::magnitude, str(w.out, " rows or ", w.in, " columns"), w);
  }

  double strength_of(const Placed& p) const {
    if (networks_[p.target.network].part == Network::Part::text)
      return use_.text_strength * use_.blocks.of_text();
    return use_.strength * use_.blocks.of_layer(p.target.layer);
  }

  std::string name_of(const Module& m) const { return str(file_.identity(), '#', m.stem()); }

  WeightChange weight_change(const Placed& p, const WeightSize& size, double strength,
                             double scale) const {
    const Module& m = p.module->module;
    const AdapterKind& k = *p.module->kind;
    const bool decomposes = p.module->decomposes();
    WeightChange out;
    Term term{&k, size, {}, p.weight->transposed};
    AdapterKind::Tensors computed;
    const Roles used_up = k.computed ? k.computed_from(m) : Roles{};
    if (k.computed) {
      AdapterKind::Tensors from;
      for (const std::string& role : used_up)
        from.emplace(role, file_.in_f32(m.tensors().find(role)->second.name));
      computed = k.computed(m, from, size);
    }
    for (const auto& [role, tensor] : m.tensors()) {
      if (role == "alpha" || role == "scale" || role == k.bias_role) continue;
      const auto made = computed.find(role);
      if (made == computed.end() && std::ranges::find(used_up, role) != used_up.end()) continue;
      term.roles.push_back(role);
      out.factors.push_back(made == computed.end() ? file_.stored(tensor.name)
                                                   : stored_tensor(made->second));
    }
    out.name = str(name_of(m), ' ', k.name);
    out.form = k.name + (term.transposed ? " transposed" : "");
    for (const std::string& role : term.roles) out.form += ' ' + role;
    out.scalars = decomposes ? std::array<float, 4>{static_cast<float>(strength),
                                                    static_cast<float>(scale), 0, 0}
                             : std::array<float, 4>{static_cast<float>(strength * scale), 0, 0, 0};
    out.reads_weight = decomposes || (k.reads_weight && !m.has("diff"));
    out.apply = term;
    return out;
  }

  WeightChange bias_change(const Placed& p, const Module& m, double scale) const {
    const std::string& role = p.module->kind->bias_role;
    return {.name = str(name_of(m), " bias"),
            .form = "bias",
            .factors = {file_.stored(m.tensors().find(role)->second.name)},
            .scalars = {static_cast<float>(scale), 0, 0, 0},
            .apply = [](const WeightChange::Operands& in) {
              const Value b = ops::reshape(ops::cast(in.factors[0], DType::f32), in.sum.shape());
              return in.sum + b * ops::slice(in.scalars, 0, 0, 1);
            }};
  }

  const AdapterUse& use_;
  const AdapterFile& file_;
  const std::vector<Network>& networks_;
};

// What the file says of the model that it was made for.
std::string made_for(const AdapterFile& file) {
  for (const char* key : {"modelspec.architecture", "ss_base_model_version", "ss_sd_model_name"})
    if (const auto it = file.metadata().find(key); it != file.metadata().end())
      return str("; the file says it is for ", it->second);
  return "";
}

}  // namespace

std::string Fit::unmatched_text(const Targets& targets) const {
  if (unmatched.empty()) return "";
  constexpr size_t shown = 5;
  std::string out =
      str(unmatched.size(), " of ", matched + unmatched.size(), " layers fit no network here: ");
  for (size_t i = 0; i < std::min(shown, unmatched.size()); ++i) {
    const std::string near = targets.nearest(unmatched[i]);
    out +=
        str(i ? ", '" : "'", unmatched[i], "'", near.empty() ? "" : " (nearest: '" + near + "')");
  }
  return out + (unmatched.size() > shown ? ", ..." : "");
}

Fit fit_of(const AdapterFile& file, const std::vector<Network>& networks, const Targets& targets) {
  Fit out;
  out.by_network.assign(networks.size(), 0);
  for (const FileModule& m : file.modules()) {
    const auto placed = place_of(m, networks, targets);
    if (!placed) {
      out.unmatched.push_back(m.module.stem());
      continue;
    }
    try {
      Changes::check(*placed, file);
    } catch (const Error& e) {
      fail(e.what(), made_for(file));
    }
    ++out.matched;
    ++out.by_network[placed->target.network];
  }
  for (const std::string& name : file.unknown()) out.unmatched.push_back(name);
  require(out.matched > 0, "adapter: the file is for other networks: ", out.unmatched_text(targets),
          made_for(file), "  ", file.path());
  return out;
}

std::vector<WeightChanges> changes_of(const std::vector<AdapterUse>& uses,
                                      const std::vector<Network>& networks,
                                      const Targets& targets) {
  std::vector<WeightChanges> out(networks.size());
  for (const AdapterUse& use : uses) {
    const Changes changes(use, networks);
    for (const FileModule& m : use.file->modules())
      if (const auto placed = place_of(m, networks, targets)) changes.add(*placed, out);
  }
  return out;
}

std::vector<std::string> check(const std::vector<AdapterUse>& uses,
                               const std::vector<Network>& networks) {
  const Targets targets(networks);
  std::vector<std::string> warnings;
  for (const AdapterUse& use : uses) {
    const Fit fit = fit_of(*use.file, networks, targets);
    if (!fit.unmatched.empty())
      warnings.push_back(str("adapter: ", fit.unmatched_text(targets), "  ", use.file->path()));
  }
  return warnings;
}

std::string overflow_of(const std::vector<AdapterUse>& uses, const std::vector<Network>& networks,
                        DType dtype, const Context& context) {
  const Targets targets(networks);
  std::map<std::pair<size_t, std::string>, std::string> files;  // by network and weight
  for (const AdapterUse& use : uses)
    for (const FileModule& m : use.file->modules()) {
      const auto p = place_of(m, networks, targets);
      if (!p) continue;
      for (const std::string& weight : {p->weight_name, p->bias_name}) {
        if (!networks[p->target.network].weights->is_changed(weight)) continue;
        std::string& all = files[{p->target.network, weight}];
        all += str(all.empty() ? "" : ", ", use.file->path(), ':', use.strength);
      }
    }
  for (const auto& [key, by] : files) {
    const Network& n = networks[key.first];
    const Tensor sum = n.weights->changed(key.second, context).to(dtype);
    if (const std::string what = train::not_finite_in(key.second, sum); !what.empty())
      return str(what, " in ", dtype, " by the changes of  ", by);
  }
  return "";
}

void apply(const std::vector<AdapterUse>& uses, const std::vector<Network>& networks, bool keep) {
  const Targets targets(networks);
  for (const AdapterUse& use : uses) fit_of(*use.file, networks, targets);
  std::vector<WeightChanges> changes = changes_of(uses, networks, targets);
  for (size_t i = 0; i < networks.size(); ++i)
    networks[i].weights->change(std::move(changes[i]), keep);
}

}  // namespace ebb::adapters
