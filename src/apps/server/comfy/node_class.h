// NodeClass: a kind of node in ComfyUI's graphs: what it takes and gives, and what it means here.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "apps/server/catalogue.h"
#include "apps/server/comfy/uploads.h"
#include "apps/server/json_body.h"

namespace ebb::server::comfy {

// ---- what links carry: how a value is made, not the value itself
struct LoraUse {
  std::string node, file;
  double strength = 1;
  bool operator==(const LoraUse&) const = default;
};
struct ModelValue {
  std::string file;
  std::vector<LoraUse> loras;
  bool operator==(const ModelValue&) const = default;
};
struct ClipValue {
  std::string checkpoint, file;  // one of both
  std::vector<LoraUse> loras;
  int64_t skip = 0;  // the layer, from the last; 0: the model's own
  bool operator==(const ClipValue&) const = default;
};
struct VaeValue {
  std::string checkpoint, file;  // one of both
  bool operator==(const VaeValue&) const = default;
};
struct TextValue {
  std::string text;
  ClipValue clip;
};
using Conditioning = std::shared_ptr<const TextValue>;
struct MaskValue {
  std::string upload;
};
struct Sampling;
struct LatentValue {
  int64_t width = 0, height = 0;  // pixels, of an empty one, or of one that is resized
  int64_t batch = 1;
  std::string upload;  // the picture that it encodes; "": none
  VaeValue vae;        // by which
  bool masked = false;
  int64_t grow = 0;                         // of its mask, pixels
  std::shared_ptr<const Sampling> sampled;  // that made it
  std::string resize;                       // behind that: the method; "": none
};
struct Sampling {
  std::string node;
  ModelValue model;
  Conditioning positive, negative;
  LatentValue start;
  Json seed;
  int64_t steps = 0;
  double cfg = 0, strength = 1;
  std::string sampler, schedule;
  // Inputs that say the seed and the strength.
  std::string seed_input = "seed", strength_input = "denoise";
};
struct ImageValue {
  std::string upload;  // of a client
  std::shared_ptr<const Sampling> sampled;
  VaeValue vae;
  std::string node;  // that decodes it
};
using Value =
    std::variant<ModelValue, ClipValue, VaeValue, Conditioning, LatentValue, ImageValue, MaskValue>;

// ---- inputs
// What names can be chosen from.
struct Choices {
  const Catalogue& catalogue;
  const Uploads& uploads;
};
enum class InputKind : uint8_t { link, integer, number, text, choice };
struct NodeInput {
  std::string name;
  InputKind kind = InputKind::link;
  std::string type;  // of a link: "MODEL"
  double least = 0, most = 0;
  bool required = true;
  Json standard = {};  // for people who make graphs; taken where it is not required
  std::vector<std::string> (*names)(const Choices&, const NodeInput&) = nullptr;  // of a choice
  bool (*accepts)(const Choices&, const NodeInput&, const std::string&) = nullptr;
  FileKind files = FileKind::model;
  std::vector<std::string> words = {};
};

// Of one node, checked: names and numbers, and what its links carry.
class NodeInputs {
 public:
  explicit NodeInputs(std::string node) : node_(std::move(node)) {}
  void set(const std::string& name, Json value) { plain_[name] = std::move(value); }
  void set(const std::string& name, const Value* value) { links_[name] = value; }

  const std::string& node() const { return node_; }
  template <class T>
  const T& value(const std::string& name) const {
    return std::get<T>(*links_.at(name));
  }
  std::string text(const std::string& name) const { return plain_.at(name).get<std::string>(); }
  int64_t integer(const std::string& name) const { return plain_.at(name).get<int64_t>(); }
  double number(const std::string& name) const { return plain_.at(name).get<double>(); }
  const Json& plain(const std::string& name) const { return plain_.at(name); }

 private:
  std::string node_;
  Json plain_ = Json::object();
  std::map<std::string, const Value*> links_;
};

struct NodeClass {
  std::string name, category;
  std::vector<NodeInput> inputs;
  std::vector<std::string> outputs;  // types
  // A value for each output. Throws HttpFault, naming the input, for what ebb does not have.
  std::vector<Value> (*make)(const NodeInputs& in);
  std::string shows = {};  // of nodes that pictures end in: "output", or "temp": not kept
};

const std::vector<NodeClass>& node_classes();
const NodeClass* find_node_class(std::string_view name);  // null: there is none

}  // namespace ebb::server::comfy
