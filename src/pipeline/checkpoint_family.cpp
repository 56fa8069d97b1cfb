#include "pipeline/checkpoint_family.h"

#include <algorithm>

#include "models/config_fields.h"
#include "text/text_encoder.h"

namespace ebb {
namespace {

bool is_text(const Component& c) { return c.model->kind == ModelKind::text_encoder; }

bool reads_published(const Family& family, int64_t channels) {
  int64_t sum = 0;
  for (const FamilyText& t : family.texts) sum += width_of(t);
  return sum == channels;
}

}  // namespace

std::vector<int64_t> text_widths(const std::vector<Component>& components) {
  std::vector<int64_t> out;
  for (const Component& c : components)
    if (is_text(c)) out.push_back(number_in(c.config, "width"));
  return out;
}

const Family& family_in(const std::vector<Component>& components) {
  const std::vector<int64_t> widths = text_widths(components);
  for (const Component& c : components)
    if (c.model->kind == ModelKind::denoiser)
      if (const Family* f = find_family(c.config, widths)) return *f;
  return family_reading(widths);
}

std::vector<const FamilyText*> texts_in(const Family& family,
                                        const std::vector<Component>& components) {
  std::vector<const FamilyText*> out;
  size_t count = 0;
  for (const Component& c : components)
    out.push_back(is_text(c) ? &text_of(family, number_in(c.config, "width"), count++) : nullptr);
  return out;
}

std::string wanted_texts(const Family& family, int64_t channels) {
  if (!reads_published(family, channels)) return str("text of ", channels, " channels");
  std::string titles, widths;
  for (const FamilyText& t : family.texts) {
    const char* and_then = titles.empty() ? "" : " and ";
    titles += str(and_then, text::text_encoder(t.encoder).title);
    widths += str(and_then, width_of(t));
  }
  return str(titles, " (", widths, " channels)");
}

std::string text_encoder_title(int64_t width) {
  const text::TextEncoder* e = text::find_text_encoder(width);
  return e ? std::string(e->title) : str("a text encoder of ", width, " channels");
}

std::vector<std::string> missing_texts(const Component& denoiser,
                                       const std::vector<Component>& components) {
  const std::vector<int64_t> widths = text_widths(components);
  const int64_t channels = text_channels(denoiser.config);
  const Family* family = find_family(denoiser.config, widths);
  if (!family || !texts_among(*family, channels, widths).empty()) return {};
  if (!reads_published(*family, channels)) return {text_encoder_title(channels)};
  std::vector<std::string> out;
  for (const FamilyText& t : family->texts)
    if (std::ranges::find(widths, width_of(t)) == widths.end())
      out.push_back("text encoder " + text_encoder_title(width_of(t)));
  return out;
}

}  // namespace ebb
