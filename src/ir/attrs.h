// Attrs: the attributes of a node, a struct with a fields() list, type-erased.
#pragma once

#include <memory>
#include <mutex>
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

  // The struct; null if it is another one.
  template <class A>
  const A* get() const {
    const auto* m = dynamic_cast<const Model<A>*>(held_.get());
    return m ? &m->value : nullptr;
  }
  // The struct. Throws Error if it is another one.
  template <class A>
  const A& as() const {
    const A* a = get<A>();
    require(a != nullptr, "attrs: expected ", typeid(A).name());
    return *a;
  }

  const std::string& text() const { return held_->text(); }  // "{a=1 b=2}"
  // The same struct with the fields that `text` names. Throws Error on unknown names.
  Attrs parsed(std::string_view text) const { return held_->parsed(text); }
  bool operator==(const Attrs& o) const {
    const Base &a = *held_, &b = *o.held_;
    return typeid(a) == typeid(b) && text() == o.text();
  }

 private:
  class Base {
   public:
    virtual ~Base() = default;
    virtual Attrs parsed(std::string_view text) const = 0;
    // Written once: passes and the tuner compare nodes by it.
    const std::string& text() const {
      std::call_once(once_, [this] { text_ = print(); });
      return text_;
    }

   private:
    virtual std::string print() const = 0;
    mutable std::once_flag once_;
    mutable std::string text_;
  };
  template <class A>
  struct Model final : Base {
    A value;
    explicit Model(A v) : value(std::move(v)) {}
    std::string print() const override {
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
