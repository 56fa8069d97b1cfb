#include "nn/params.h"

#include "base/error.h"
#include "ops/stop_gradient/op.h"

namespace ebb::nn {
namespace {

// Ten times those of the largest networks; describing a config's million blocks would not end.
constexpr size_t most_sources = 10'000;

}  // namespace

std::string Params::join(std::string_view name) const {
  return path_.empty() ? std::string(name) : path_ + "." + std::string(name);
}

Params Params::operator/(std::string_view name) const {
  Params out(*graph_, join(name), weights_);
  out.constant_ = constant_;
  return out;
}

Params Params::constant() const {
  Params out = *this;
  out.constant_ = true;
  return out;
}

Value Params::source(Source::Kind kind, const std::string& name, const Shape& shape,
                     WeightSpec spec) const {
  const Type type{DType::f32, shape};
  const Source* known = graph_->find_source(name);
  if (!known) {
    require(graph_->sources().size() < most_sources, "network: must have at most ", most_sources,
            " tensors; fewer blocks make fewer  at ", name);
    if (weights_) weights_->push_back({name, shape, std::move(spec), kind == Source::Kind::param});
    return graph_->source(kind, name, type);
  }
  const Value v = graph_->value(known->value);
  require(known->kind == kind && v.type() == type, "params: '", name, "' exists already as ",
          v.type(), "  wanted: ", type);
  return v;
}

Value Params::param(std::string_view name, const Shape& shape, WeightSpec spec) const {
  spec.decay = spec.decay && shape.rank() > 1;
  const Value v = source(Source::Kind::param, join(name), shape, std::move(spec));
  return constant_ ? ops::stop_gradient(v) : v;
}

Value Params::buffer(std::string_view name, const Shape& shape, WeightSpec spec) const {
  return source(Source::Kind::state, join(name), shape, std::move(spec));
}

}  // namespace ebb::nn
