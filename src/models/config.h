// ModelConfig: the config of a model, type-erased. Its fields() give the flags, the JSON keys and
// the text.
#pragma once

#include <memory>
#include <string>
#include <typeinfo>
#include <vector>

#include "base/error.h"
#include "base/fields.h"

namespace ebb {

// The first member `common` of every denoiser's config.
struct CommonConfig {
  int64_t image_size = 32;
  int64_t in_channels = 3;
  int64_t classes = 0;
  double dropout = 0;
  void fields(auto&& f) {
    f("image_size", image_size, "height and width of the images (or latents), pixels");
    f("in_channels", in_channels, "channels of the images");
    f("classes", classes, "number of classes; 0: unconditional");
    f("dropout", dropout, "probability that an activation is dropped in training");
  }
};

class ModelConfig {
 public:
  template <class C>
  requires requires(C c) {
    c.fields([](auto&&...) {});
  }
  ModelConfig(C config)  // NOLINT: a model's struct is its config
      : held_(std::make_unique<Held<C>>(std::move(config))) {}
  ModelConfig(const ModelConfig& o) : held_(o.held_->clone()) {}
  ModelConfig(ModelConfig&&) = default;
  ModelConfig& operator=(ModelConfig o) {
    held_ = std::move(o.held_);
    return *this;
  }

  std::vector<Field> fields() { return held_->fields(); }  // they point into this config
  // Throws Error for a config without: of a component that is no denoiser.
  CommonConfig& common() { return held_->common(); }
  const CommonConfig& common() const { return held_->common(); }
  std::string text() const { return held_->text(); }  // "{a=1 b=[2,3]}"
  bool operator==(const ModelConfig& o) const {
    const Base &a = *held_, &b = *o.held_;
    return typeid(a) == typeid(b) && text() == o.text();
  }

  // The struct. Throws Error if it is another one.
  template <class C>
  C& as() {
    return cast<C>(*held_).value;
  }
  template <class C>
  const C& as() const {
    return cast<C>(*held_).value;
  }

 private:
  struct Base {
    virtual ~Base() = default;
    virtual std::unique_ptr<Base> clone() const = 0;
    virtual std::vector<Field> fields() = 0;
    virtual CommonConfig& common() = 0;
    virtual std::string text() const = 0;
  };
  template <class C>
  struct Held final : Base {
    C value;
    explicit Held(C v) : value(std::move(v)) {}
    std::unique_ptr<Base> clone() const override { return std::make_unique<Held>(value); }
    std::vector<Field> fields() override { return fields_of(value); }
    CommonConfig& common() override {
      if constexpr (requires { value.common; })
        return value.common;
      else
        fail("model config: only a denoiser's has images and classes");
    }
    std::string text() const override {
      C copy = value;
      return fields_text(fields_of(copy));
    }
  };
  template <class C>
  static Held<C>& cast(Base& held) {
    auto* h = dynamic_cast<Held<C>*>(&held);
    require(h != nullptr, "model config: expected ", typeid(C).name());
    return *h;
  }

  std::unique_ptr<Base> held_;
};

}  // namespace ebb
