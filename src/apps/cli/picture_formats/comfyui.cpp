// ComfyUI: `prompt` is the graph that made the picture, {"ID":{"class_type","inputs"}}, where an
// input is a value or a link ["ID", number of the output]. Nodes are known by the names of their
// inputs, whatever their class, so that those of extensions are, too.
#include <algorithm>
#include <cstdlib>
#include <deque>
#include <initializer_list>
#include <set>

#include "apps/cli/picture_formats.h"
#include "base/error.h"
#include "base/fields.h"
#include "base/names.h"
#include "base/parse_json.h"

namespace ebb::cli::picture_formats {
namespace {

using Json = nlohmann::ordered_json;
using Names = std::initializer_list<const char*>;
using Node = const Json*;  // the inputs of one, in the graph

constexpr const char* names_of_values[] = {"value", "int",  "float", "number", "string",
                                           "text",  "Text", "seed",  "prompt", "result"};

class Graph {
 public:
  explicit Graph(const Json& nodes) : nodes_(nodes) {}

  // Null where there is none, or it has no inputs.
  Node node(const std::string& id) const {
    const auto at = nodes_.find(id);
    if (at == nodes_.end() || !at->is_object()) return nullptr;
    const auto inputs = at->find("inputs");
    return inputs != at->end() && inputs->is_object() ? &*inputs : nullptr;
  }

  // That an input is linked to; null for values.
  Node linked(const Json& input) const {
    if (!input.is_array() || input.size() != 2) return nullptr;
    if (input[0].is_string()) return node(input[0].get_ref<const std::string&>());
    return input[0].is_number_integer() ? node(input[0].dump()) : nullptr;
  }
  // By the first of these inputs that is a link.
  Node next(Node from, const Names& names) const {
    for (const char* name : names)
      if (const auto at = from->find(name); at != from->end())
        if (const Node to = linked(*at)) return to;
    return nullptr;
  }

  // `from` and what is behind it by the first link of each, until one comes again.
  std::vector<Node> chain(Node from, const Names& names) const {
    std::vector<Node> out;
    std::set<Node> seen;
    for (Node n = from; n && seen.insert(n).second; n = next(n, names)) out.push_back(n);
    return out;
  }

  // The text of a value, also where it stands in nodes that hold only that; "" where there is none.
  std::string value(Node of, const Names& names) const {
    const Json* found = nullptr;
    for (const char* name : names)
      if (const auto at = of->find(name); !found && at != of->end()) found = &*at;
    std::set<Node> seen;
    while (found && found->is_array()) {
      const Node holder = linked(*found);
      found = nullptr;
      if (!holder || !seen.insert(holder).second) break;
      for (const char* name : names_of_values)
        if (const auto at = holder->find(name); !found && at != holder->end()) found = &*at;
    }
    if (!found) return "";
    if (found->is_string()) return found->get<std::string>();
    return found->is_number() ? found->dump() : "";
  }

  // Nodes from which pictures come, then what they are linked to, the nearest first.
  std::vector<Node> from_pictures() const {
    std::deque<Node> open;
    for (const auto& [id, all] : nodes_.items()) {
      if (!all.is_object()) continue;
      const std::string kind = all.contains("class_type") && all["class_type"].is_string()
                                   ? all["class_type"].get<std::string>()
                                   : "";
      const bool shows = kind.find("Save") != kind.npos || kind.find("Preview") != kind.npos;
      if (const Node n = node(id); n && shows && next(n, {"images", "image"})) open.push_back(n);
    }
    std::vector<Node> out;
    for (std::set<Node> seen(open.begin(), open.end()); !open.empty(); open.pop_front()) {
      out.push_back(open.front());
      for (const Json& input : *open.front())
        if (const Node to = linked(input); to && seen.insert(to).second) open.push_back(to);
    }
    return out;
  }

 private:
  const Json& nodes_;
};

bool is_sampler(Node n) {
  return (n->contains("sampler_name") && (n->contains("seed") || n->contains("noise_seed"))) ||
         (n->contains("sigmas") && (n->contains("noise") || n->contains("noise_seed")));
}

// A sampler with the nodes that newer ones have their settings in.
struct Sampler {
  std::vector<Node> parts;

  static Sampler at(const Graph& g, Node n) {
    Sampler out{{n}};
    for (const char* part : {"noise", "sampler", "sigmas", "guider"})
      if (const Node to = g.next(n, {part})) out.parts.push_back(to);
    return out;
  }
  std::string value(const Graph& g, const Names& names) const {
    for (const Node part : parts)
      if (std::string v = g.value(part, names); !v.empty()) return v;
    return "";
  }
  Node next(const Graph& g, const Names& names) const {
    for (const Node part : parts)
      if (const Node to = g.next(part, names)) return to;
    return nullptr;
  }
};

// What lies between a sampler and the noise that the first one begins with.
struct Start {
  std::vector<Sampler> before;  // whose latents it gets, the nearest first
  Node enlarges = nullptr;      // what makes these larger
  Node empty = nullptr;         // latents of a size; null: of a picture
};

Start start_of(const Graph& g, const Sampler& last) {
  Start out;
  const Names before = {"latent_image", "samples", "latent", "pixels", "images", "image"};
  for (const Node n : g.chain(last.next(g, {"latent_image", "latent", "samples"}), before)) {
    if (is_sampler(n)) out.before.push_back(Sampler::at(g, n));
    if (n->contains("upscale_method") || n->contains("upscale_model")) out.enlarges = n;
    if (!g.next(n, before) && n->contains("width") && n->contains("height")) out.empty = n;
  }
  return out;
}

void add_prompts(const Graph& g, const Sampler& s, FoundSettings& out) {
  for (const char* role : {"positive", "negative"}) {
    std::string& text = *role == 'p' ? out.text.prompt : out.text.negative;
    const Node first = *role == 'p' ? s.next(g, {role, "conditioning"}) : s.next(g, {role});
    for (const Node n : g.chain(first, {role, "conditioning", "conditioning_1", "conditioning_to"}))
      if (text.empty()) text = g.value(n, {"text", "text_g", "prompt", "t5xxl"});
  }
}

void add_clip_skip(const Graph& g, const Sampler& s, FoundSettings& out) {
  const Names before = {"clip", "positive", "conditioning", "conditioning_1", "conditioning_to"};
  for (const Node n : g.chain(s.next(g, {"positive", "conditioning"}), before)) {
    const std::string layer = g.value(n, {"stop_at_clip_layer"});
    if (layer.starts_with('-')) return add_value(out.text, "Clip skip", layer.substr(1));
  }
}

void add_model(const Graph& g, const Sampler& s, FoundSettings& out) {
  for (const Node n : g.chain(s.next(g, {"model"}), {"model"})) {
    if (const std::string lora = g.value(n, {"lora_name"}); !lora.empty()) {
      const std::string strength = g.value(n, {"strength_model"}),
                        of_text = g.value(n, {"strength_clip"});
      out.loras.insert(out.loras.begin(),
                       str(file_stem(lora), ':', strength.empty() ? "1" : strength,
                           of_text.empty() || of_text == strength ? "" : ":" + of_text));
    }
    if (const std::string file = g.value(n, {"ckpt_name", "unet_name"}); !file.empty())
      return add_value(out.text, "Model", file_stem(file));
  }
}

double number(const std::string& text) {
  return text.empty() ? 0 : std::strtod(text.c_str(), nullptr);
}

// By A1111's names.
std::string upscaler_of(const Graph& g, Node enlarges) {
  const std::string method = g.value(enlarges, {"upscale_method"});
  if (!enlarges->contains("samples")) {  // of pixels, or by a network
    if (const Node network = g.next(enlarges, {"upscale_model"}))
      return file_stem(g.value(network, {"model_name"}));
    return method == "nearest-exact" ? "Nearest" : method == "lanczos" ? "Lanczos" : method;
  }
  const bool has_own = method == "nearest-exact" || method == "bicubic";
  return has_own ? str("Latent (", method, ')') : "Latent";
}

void add_strength(const Graph& g, const Sampler& s, FoundSettings& out) {
  const std::string denoise = s.value(g, {"denoise"});
  add_value(out.text, "Denoising strength", denoise.empty() ? "1" : denoise);
}

// Of KSamplerAdvanced.
void add_part_of_steps(const Graph& g, const Sampler& s, FoundSettings& out) {
  const std::string from = s.value(g, {"start_at_step"});
  if (number(from) > 0) add_value(out.text, "start_at_step", from);
}

void add_second_pass(const Graph& g, const Sampler& second, const Start& start,
                     const std::string& width, FoundSettings& out) {
  std::string scale = g.value(start.enlarges, {"scale_by"});
  const double wide = number(g.value(start.enlarges, {"width"}));
  if (scale.empty() && wide > 0 && number(width) > 0) scale = number_text(wide / number(width));
  add_value(out.text, "Hires upscale", scale);
  add_value(out.text, "Hires steps", second.value(g, {"steps"}));
  add_value(out.text, "Hires upscaler", upscaler_of(g, start.enlarges));
  add_strength(g, second, out);
}

std::optional<FoundSettings> read(const TextsOfPicture& text) {
  const auto nodes = parse_json<Json>(text_of(text, "prompt"));
  if (!nodes.is_object()) return {};
  const Graph g(nodes);
  const auto all = g.from_pictures();
  const auto at = std::ranges::find_if(all, is_sampler);
  if (at == all.end()) return {};
  const Sampler last = Sampler::at(g, *at);
  const Start start = start_of(g, last);
  const Sampler first = start.before.empty() ? last : start.before.back();
  FoundSettings out;
  add_prompts(g, first, out);
  for (const auto& [key, name] :
       {std::pair{"Steps", "steps"}, std::pair{"Sampler", "sampler_name"},
        std::pair{"Schedule type", "scheduler"}, std::pair{"CFG scale", "cfg"}})
    add_value(out.text, key, first.value(g, {name}));
  add_value(out.text, "Seed", first.value(g, {"seed", "noise_seed"}));
  const std::string width = start.empty ? g.value(start.empty, {"width"}) : "",
                    height = start.empty ? g.value(start.empty, {"height"}) : "";
  if (!width.empty() && !height.empty()) add_value(out.text, "Size", str(width, 'x', height));
  add_clip_skip(g, first, out);
  add_model(g, first, out);
  for (const Node n : all)
    if (n->contains("samples") && n->contains("vae"))
      if (const Node vae = g.next(n, {"vae"}); vae && out.text.value("VAE").empty())
        add_value(out.text, "VAE", file_stem(g.value(vae, {"vae_name"})));
  if (start.before.size() == 1 && start.enlarges)
    add_second_pass(g, last, start, width, out);
  else if (!start.empty)
    add_strength(g, first, out);
  if (start.before.empty() || !start.enlarges) add_part_of_steps(g, last, out);
  return out;
}

}  // namespace

const PictureFormat& comfyui() {
  static const PictureFormat f{"ComfyUI", "comfy", read};
  return f;
}

}  // namespace ebb::cli::picture_formats
