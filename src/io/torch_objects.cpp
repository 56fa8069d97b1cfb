#include "io/torch_objects.h"

#include <algorithm>
#include <array>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/utf8.h"
#include "io/json_cursor.h"
#include "io/safetensors_header.h"
#include "io/torch_callables.h"

namespace ebb::io {
namespace {

using Kind = PickleNode::Kind;

constexpr int64_t depth_limit = 16, rank_limit = 8, text_limit = 4096;
constexpr size_t tensor_limit = 1'000'000, visit_limit = 4'000'000;

// Where programs put the weights, the first of these that is there: upscalers' averages are what
// their programs take.
constexpr std::array plain_keys = {"state_dict", "params_ema", "params", "model_state_dict",
                                   "generator",  "net",        "module", "model"};
constexpr std::array averaged_keys = {"params_ema", "ema_state_dict", "state_dict_ema", "model_ema",
                                      "ema"};

std::string_view callable_of(const Pickle& p, const PickleNode& n) {
  return n.kind == Kind::call ? std::string_view(p[n.items[0]].text) : std::string_view();
}

class ObjectReader {
 public:
  ObjectReader(const Pickle& p, const TorchStorages& storages, const std::string& file,
               const TensorFileOptions& options)
      : p_(p), storages_(storages), file_(file), options_(options) {}

  TensorHeader read() {
    uint32_t root = p_.root;
    for (int64_t i = 0; i < 3; ++i)
      if (const auto inner = unwrapped(root)) root = *inner;
    take(root, "", 0);
    require(!out_.entries.empty(), "torch: the file has no tensors  ", file_);
    std::ranges::stable_sort(out_.entries, {}, &TensorEntry::begin);
    if (averages_) out_.metadata["torch.averages"] = "read";
    return std::move(out_);
  }

 private:
  template <class... Parts>
  void check(bool ok, const Parts&... parts) const {
    require(ok, "torch: ", parts..., "  ", file_);
  }

  // ---- objects ----

  // Keys and values of a dict, or of what stands for one; none if it is neither.
  struct Items {
    const std::vector<uint32_t>* list = nullptr;
    size_t first = 0;
    explicit operator bool() const { return list != nullptr; }
  };

  Items plain_items(const PickleNode& n) const {
    if (n.kind == Kind::dict) return {&n.items, 0};
    const std::string_view callable = callable_of(p_, n);
    if (callable == "collections OrderedDict" || callable == "collections defaultdict")
      return {&n.items, 2};
    return {};
  }

  // A container of parameters holds them in its state. State and parameters are plain dicts in what
  // torch writes; to take only those bounds the depth.
  Items items_of(const PickleNode& n) const {
    if (!callable_of(p_, n).starts_with("torch.nn.modules.container Parameter"))
      return plain_items(n);
    for (const uint32_t state : n.state) {
      const Items fields = plain_items(p_[state]);
      check(!!fields, "the state of a container of parameters must be a dict");
      if (const auto inner = value(fields, "_parameters")) {
        const Items parameters = plain_items(p_[*inner]);
        check(!!parameters, "the parameters of a container must be a dict");
        return parameters;
      }
    }
    return {};
  }

  template <class F>
  void each(const Items& items, const F& f) const {
    check((items.list->size() - items.first) % 2 == 0, "keys of a dict must have values");
    for (size_t i = items.first; i < items.list->size(); i += 2)
      f(p_[(*items.list)[i]], (*items.list)[i + 1]);
  }

  std::optional<uint32_t> value(const Items& items, std::string_view key) const {
    std::optional<uint32_t> out;
    each(items, [&](const PickleNode& k, uint32_t v) {
      if (k.kind == Kind::text && k.text == key) out = v;
    });
    return out;
  }

  // The dict of weights in `root`; the rest is noted.
  std::optional<uint32_t> unwrapped(uint32_t root) {
    const Items items = items_of(p_[root]);
    if (!items) return {};
    const auto find = [&](const auto& keys) -> std::optional<std::string> {
      for (const char* key : keys)
        if (const auto v = value(items, key); v && items_of(p_[*v])) return key;
      return {};
    };
    auto key = options_.averaged ? find(averaged_keys) : std::nullopt;
    averages_ = averages_ || key.has_value();
    if (!key) key = find(plain_keys);
    if (!key) return {};
    each(items, [&](const PickleNode& k, uint32_t v) {
      if (k.kind != Kind::text || k.text == *key) return;
      if (!note(k.text, p_[v]) && !p_[v].items.empty()) not_read(k.text);
    });
    return value(items, *key);
  }

  void not_read(const std::string& key) {
    std::string& text = out_.metadata["torch.not_read"];
    if (static_cast<int64_t>(text.size() + key.size()) < text_limit)
      text += (text.empty() ? "" : ", ") + key;
  }

  // Numbers and short texts; true if it is one.
  bool note(const std::string& key, const PickleNode& n) {
    const bool text = n.kind == Kind::text;
    const bool simple =
        text || n.kind == Kind::integer || n.kind == Kind::boolean || n.kind == Kind::number;
    if (simple && static_cast<int64_t>(key.size() + n.text.size()) < text_limit && valid_utf8(key))
      out_.metadata.emplace(key, text                     ? n.text
                                 : n.kind == Kind::number ? str(n.number)
                                                          : std::to_string(n.integer));
    return simple || n.kind == Kind::none;
  }

  void take(uint32_t index, const std::string& name, int64_t depth) {
    check(++visits_ < visit_limit && depth < depth_limit, "objects must be nested at most ",
          depth_limit, " deep, and be at most ", visit_limit);
    const PickleNode& n = p_[index];
    if (const PickleNode* tensor = tensor_in(n)) return add(*tensor, name);
    if (const Items items = items_of(n)) {
      each(items, [&](const PickleNode& k, uint32_t v) {
        const bool number = k.kind == Kind::integer;
        if (!number && k.kind != Kind::text) return;
        const std::string key = number ? std::to_string(k.integer) : k.text;
        take(v, name.empty() ? key : name + "." + key, depth + 1);
      });
    } else if (n.kind == Kind::list || n.kind == Kind::tuple) {
      for (size_t i = 0; i < n.items.size(); ++i)
        take(n.items[i], name.empty() ? std::to_string(i) : str(name, '.', i), depth + 1);
    } else if (depth == 1) {
      note(name, n);
    }
  }

  // ---- tensors ----

  const PickleNode& argument(const PickleNode& call, size_t i) const {
    const PickleNode& tuple = p_[call.items[1]];
    check(tuple.kind == Kind::tuple && i < tuple.items.size(), "a call lacks arguments (", i,
          " of ", callable_of(p_, call), ")");
    return p_[tuple.items[i]];
  }

  // The call that makes a tensor, behind those of parameters and the like.
  const PickleNode* tensor_in(const PickleNode& node) const {
    const PickleNode* n = &node;
    for (int64_t i = 0; i < depth_limit; ++i) {
      const std::string_view callable = callable_of(p_, *n);
      if (callable.starts_with("torch._utils _rebuild_parameter"))
        n = &argument(*n, 0);
      else if (callable.starts_with("torch._utils _rebuild_tensor"))
        return n;
      else
        return nullptr;
    }
    return nullptr;
  }

  std::vector<int64_t> integers(const PickleNode& given, const std::string& name) const {
    const PickleNode& n = callable_of(p_, given) == "torch Size" ? argument(given, 0) : given;
    check(n.kind == Kind::tuple && static_cast<int64_t>(n.items.size()) <= rank_limit,
          "sizes of a tensor must be a tuple of at most ", rank_limit, " numbers  ", shown(name));
    std::vector<int64_t> out;
    for (const uint32_t i : n.items) {
      check(p_[i].kind == Kind::integer && p_[i].integer >= 0,
            "sizes of a tensor must be numbers from 0 on  ", shown(name));
      out.push_back(p_[i].integer);
    }
    return out;
  }

  void add(const PickleNode& call, const std::string& given) {
    constexpr std::string_view nameless = "tensor";  // the whole object is one
    const std::string name = given.empty() ? std::string(nameless) : given;
    check(static_cast<int64_t>(name.size()) <= safetensors_name_limit &&
              name.find('\0') == std::string::npos && names_.insert(name).second &&
              names_.size() <= tensor_limit,
          "names of tensors must differ, and be short  ", shown(name));
    check(argument(call, 0).kind == Kind::persistent, "a tensor must have a storage  ",
          shown(name));
    TorchStorage s = torch_storage(p_, argument(call, 0), file_);
    if (callable_of(p_, call) == "torch._utils _rebuild_tensor_v3") {
      s.dtype = torch_dtype(argument(call, 6).text);
      const FileDType* dtype = find_file_dtype(s.dtype);
      check(dtype, "has a tensor of an unknown dtype (", argument(call, 6).text, ")  ",
            shown(name));
      s.element = dtype->bits / 8;
    }
    check(argument(call, 1).kind == Kind::integer, "a tensor must have an offset  ", shown(name));
    place(s, argument(call, 1).integer, integers(argument(call, 2), name),
          integers(argument(call, 3), name), name);
  }

  // Every product is checked: the numbers are the file's.
  void place(const TorchStorage& s, int64_t offset, const std::vector<int64_t>& sizes,
             std::vector<int64_t> strides, const std::string& name) {
    check(sizes.size() == strides.size(), "a tensor must have as many strides as sizes (",
          strides.size(), " for ", sizes.size(), ")  ", shown(name));
    const auto at = storages_.find(s.key);
    check(at != storages_.end(), "storage ", shown(s.key), " is not in the file  ", shown(name));
    const auto [begin, end] = at->second;
    const int64_t elements = (end - begin) / s.element;
    int64_t count = 1, reach = 1;  // elements; and from the first to behind the last in the storage
    bool fits = !__builtin_add_overflow(offset, s.first, &offset) && offset >= 0, row_by_row = true;
    for (size_t d = sizes.size(); d-- > 0;) {
      int64_t span = 0;
      row_by_row = row_by_row && (sizes[d] == 1 || strides[d] == count);
      fits = fits &&
             !__builtin_mul_overflow(std::max<int64_t>(sizes[d], 1) - 1, strides[d], &span) &&
             !__builtin_add_overflow(reach, span, &reach) &&
             !__builtin_mul_overflow(count, sizes[d], &count);
    }
    if (std::ranges::find(sizes, 0) != sizes.end()) count = reach = 0;
    check(fits && reach <= elements && offset <= elements - reach,
          "a tensor must lie within its storage of ", elements, " elements  ", shown(name));
    check(count <= elements, "a tensor must not repeat elements (", count, " of ", elements, ")  ",
          shown(name));
    TensorEntry e{
        .name = name, .file_dtype = std::string(s.dtype), .dtype = {}, .shape = Shape(sizes)};
    e.dtype = find_file_dtype(s.dtype)->loads_as;
    if (!row_by_row && count > 0) e.strides = std::move(strides);
    e.begin = begin + offset * s.element;
    e.end = e.begin + reach * s.element;
    out_.entries.push_back(std::move(e));
  }

  const Pickle& p_;
  const TorchStorages& storages_;
  const std::string& file_;
  const TensorFileOptions& options_;
  TensorHeader out_;
  std::set<std::string> names_;
  size_t visits_ = 0;
  bool averages_ = false;
};

}  // namespace

// ('storage', type, key, location, elements[, view]), where view is (key, first, elements).
TorchStorage torch_storage(const Pickle& p, const PickleNode& id, const std::string& file) {
  const auto check = [&](bool ok, const char* rule) { require(ok, "torch: ", rule, "  ", file); };
  const PickleNode& tuple = p[id.items[0]];
  check(tuple.kind == Kind::tuple && tuple.items.size() >= 5 && p[tuple.items[0]].text == "storage",
        "must name storages as torch.save does");
  TorchStorage out{.key = p[tuple.items[2]].text, .dtype = torch_dtype(p[tuple.items[1]].text)};
  const FileDType* dtype = find_file_dtype(out.dtype);
  check(dtype != nullptr, "has a storage of an unknown dtype");
  out.element = dtype->bits / 8;
  if (tuple.items.size() > 5 && p[tuple.items[5]].kind == Kind::tuple) {
    const PickleNode& view = p[tuple.items[5]];
    check(view.items.size() == 3 && p[view.items[1]].kind == Kind::integer,
          "must name views of storages as torch.save does");
    out.first = p[view.items[1]].integer;
  }
  return out;
}

TensorHeader torch_tensors(const Pickle& pickle, const TorchStorages& storages,
                           const std::string& file, const TensorFileOptions& options) {
  return ObjectReader(pickle, storages, file, options).read();
}

}  // namespace ebb::io
