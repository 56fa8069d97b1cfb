#include "train/captions.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/random.h"
#include "base/text.h"
#include "base/utf8.h"
#include "train/sample_order.h"

namespace ebb::train {

std::vector<std::string> tags_of(const std::string& caption) {
  std::vector<std::string> out;
  for (size_t at = 0; at <= caption.size();) {
    const size_t end = std::min(caption.find(',', at), caption.size());
    const size_t first = caption.find_first_not_of(' ', at);
    if (first < end)
      out.push_back(caption.substr(first, caption.find_last_not_of(' ', end - 1) - first + 1));
    at = end + 1;
  }
  return out;
}

namespace {

std::string shuffled(const std::string& caption, int64_t keep, uint64_t seed, int64_t image) {
  const std::vector<std::string> tags = tags_of(caption);
  const auto count = std::ssize(tags), fixed = std::min(keep, count);
  std::vector<std::string> out(tags.begin(), tags.begin() + fixed);
  for (int64_t i = 0; i < count - fixed; ++i)
    out.push_back(tags[static_cast<size_t>(fixed + permuted(i, count - fixed,
                                                            seed ^ random_use("caption.shuffle"),
                                                            static_cast<uint64_t>(image)))]);
  return separated(out, ", ");
}

}  // namespace

void check(const CaptionOptions& o) {
  require(o.dropout >= 0 && o.dropout <= 1, "caption_dropout: must be from 0 to 1 (", o.dropout,
          ")");
  require(valid_utf8(o.prefix), "caption_prefix: must be UTF-8");
  require(o.keep >= 0, "keep_tags: must not be negative (", o.keep, ")");
  require(o.keep == 0 || o.shuffle, "keep_tags: is for shuffle_tags (", o.keep, ")");
}

const std::string& pick_caption(const std::vector<std::string>& captions, uint64_t seed,
                                int64_t image) {
  const RandomKey key{seed, static_cast<uint64_t>(image), 0, random_use("caption.draw")};
  return captions[random_block(key, 0)[0] % captions.size()];
}

std::string caption_of(const std::string& caption, const CaptionOptions& o, uint64_t seed,
                       int64_t image) {
  const RandomKey key{seed, static_cast<uint64_t>(image), 0, random_use("caption.drop")};
  if (o.dropout > 0 && double{uniform_from(random_block(key, 0)[0])} < o.dropout) return "";
  const std::string text = o.shuffle ? shuffled(caption, o.keep, seed, image) : caption;
  if (o.prefix.empty()) return text;
  return text.empty() ? o.prefix : str(o.prefix, o.prefix.ends_with(' ') ? "" : " ", text);
}

}  // namespace ebb::train
