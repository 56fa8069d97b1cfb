// Attrs: the attributes of a node, a struct with a fields() list, type-erased.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <typeinfo>
#include <utility>

#include "base/error.h"
#include "base/fields.h"

namespace ebb {

// For ops without attributes.
struct NoAttrs {
  void fields(auto&&) {}
};

class Attrs {
 public:
  Attrs() : Attrs(NoAttrs{}) {}
  template <class A>
  requires requires(A a) { fields_of(a); }
  Attrs(A value)  // NOLINT: an op's struct is its attributes
      : held_(std::make_shared<const Model<A>>(std::move(value))) {}

  // The struct. Throws Error if it is another one.
  template <class A>
  const A& as() const {
    const auto* m = dynamic_cast<const Model<A>*>(held_.get());
    require(m != nullptr, "attrs: expected ", typeid(A).name());
    return m->value;
  }

  std::string text() const { return held_->text(); }  // "{a=1 b=2}"
  // The same struct with the fields that `text` names. Throws Error on unknown names.
  Attrs parsed(std::string_view text) const { return held_->parsed(text); }
  bool operator==(const Attrs& o) const {
    const Base &a = *held_, &b = *o.held_;
    return typeid(a) == typeid(b) && text() == o.text();
  }

 private:
  struct Base {
    virtual ~Base() = default;
    virtual std::string text() const = 0;
    virtual Attrs parsed(std::string_view text) const = 0;
  };
  template <class A>
  struct Model final : Base {
    A value;
    explicit Model(A v) : value(std::move(v)) {}
    std::string text() const override {
      A copy = value;
      return fields_text(fields_of(copy));
    }
    Attrs parsed(std::string_view text) const override {
      A copy = value;
      parse_fields(fields_of(copy), text);
      return Attrs(std::move(copy));
    }
  };
  std::shared_ptr<const Base> held_;
};

}  // namespace ebb
