#include <algorithm>

#include "models/config_fields.h"
#include "models/family.h"

#define X(name)              \
  namespace ebb::families {  \
  const ebb::Family& name(); \
  }
#include "ebb/gen/families.inc"
#undef X

namespace ebb {

const std::vector<const Family*>& all_families() {
  static const std::vector<const Family*> families = {
#define X(name) &families::name(),
#include "ebb/gen/families.inc"
#undef X
  };
  return families;
}

int64_t width_of(const FamilyText& text) {
  return number_in(find_component(text.encoder).config, "width");
}

int64_t text_channels(const ModelConfig& config) {
  return find_number(config, "context").value_or(0);
}

const Family* find_family(const ModelConfig& config) {
  const Family* similar = nullptr;
  for (const Family* f : all_families()) {
    const Likeness likeness = f->is(config);
    if (likeness == Likeness::same) return f;
    if (likeness == Likeness::similar && !similar) similar = f;
  }
  return similar;
}

const Family& family_of(const ModelConfig& config, std::string_view subject) {
  const Family* f = find_family(config);
  require(f != nullptr, subject, ": the network is of no family that reads text");
  return *f;
}

bool plausible_side(const Family& family, int64_t latents) {
  constexpr int64_t smallest = 64, times = 4;  // pixels; the family's own side
  return latents > 0 && latents <= times * family.image_size &&
         latents * family.latents.factor >= smallest;
}

Beside beside_of(const ModelConfig& config) {
  const Family* f = find_family(config);
  const int64_t channels = find_number(config, "extra_channels").value_or(0);
  if (!f || channels == 0) return Beside::nothing;
  for (const auto& [count, beside] : f->beside)
    if (count == channels) return beside;
  return Beside::unknown;
}

const Family* find_family(const ModelConfig& config, const std::vector<int64_t>& widths) {
  const Family* best = find_family(config);
  const int64_t channels = text_channels(config);
  if (!best || !texts_among(*best, channels, widths).empty()) return best;
  for (const Family* f : all_families())
    if (f->is(config) != Likeness::none && !texts_among(*f, channels, widths).empty()) return f;
  return best;
}

const Family& family_reading(const std::vector<int64_t>& widths) {
  std::vector<int64_t> sorted = widths;
  std::ranges::sort(sorted);
  const Family* as_many = nullptr;
  for (const Family* f : all_families()) {
    std::vector<int64_t> published;
    for (const FamilyText& t : f->texts) published.push_back(width_of(t));
    std::ranges::sort(published);
    if (published == sorted && !f->variants.empty()) return *f;
    if (published.size() == sorted.size() && !as_many) as_many = f;
  }
  return as_many ? *as_many : *find_family(find_model("sd15").config);
}

namespace {

// Adds `count` more, none narrower than the last one.
bool add_texts(std::vector<size_t>& chosen, size_t count, int64_t channels,
               const std::vector<int64_t>& widths) {
  if (count == 0) return channels == 0;
  for (size_t i = 0; i < widths.size(); ++i) {
    if (!chosen.empty() && widths[i] < widths[chosen.back()]) continue;
    if (widths[i] > channels || std::ranges::find(chosen, i) != chosen.end()) continue;
    chosen.push_back(i);
    if (add_texts(chosen, count - 1, channels - widths[i], widths)) return true;
    chosen.pop_back();
  }
  return false;
}

}  // namespace

std::vector<size_t> texts_among(const Family& family, int64_t channels,
                                const std::vector<int64_t>& widths) {
  std::vector<size_t> out;
  add_texts(out, family.texts.size(), channels, widths);
  return out;
}

const FamilyText& text_of(const Family& family, int64_t width, size_t index) {
  for (const FamilyText& t : family.texts)
    if (width_of(t) == width) return t;
  return family.texts.at(std::min(index, family.texts.size() - 1));
}

}  // namespace ebb
