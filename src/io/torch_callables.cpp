#include "io/torch_callables.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "io/json_cursor.h"

namespace ebb::io {
namespace {

using Kind = PickleNode::Kind;

constexpr std::array<std::pair<std::string_view, std::string_view>, 28> dtypes{{
    {"torch FloatStorage", "F32"},
    {"torch HalfStorage", "F16"},
    {"torch BFloat16Storage", "BF16"},
    {"torch DoubleStorage", "F64"},
    {"torch LongStorage", "I64"},
    {"torch IntStorage", "I32"},
    {"torch ShortStorage", "I16"},
    {"torch CharStorage", "I8"},
    {"torch ByteStorage", "U8"},
    {"torch BoolStorage", "BOOL"},
    {"torch ComplexFloatStorage", "C64"},
    {"torch.storage UntypedStorage", "U8"},
    {"torch UntypedStorage", "U8"},
    {"torch float32", "F32"},
    {"torch float16", "F16"},
    {"torch bfloat16", "BF16"},
    {"torch float64", "F64"},
    {"torch int64", "I64"},
    {"torch int32", "I32"},
    {"torch int16", "I16"},
    {"torch int8", "I8"},
    {"torch uint8", "U8"},
    {"torch bool", "BOOL"},
    {"torch complex64", "C64"},
    {"torch uint16", "U16"},
    {"torch uint32", "U32"},
    {"torch float8_e4m3fn", "F8_E4M3"},
    {"torch float8_e5m2", "F8_E5M2"},
}};

// Exactly these. Builtins are values only: what reads attributes, code or files is not here.
constexpr std::array names = {"collections OrderedDict",
                              "collections defaultdict",
                              "collections deque",
                              "collections Counter",
                              "torch Size",
                              "torch device",
                              "torch Tensor",
                              "torch Generator",
                              "torch.storage TypedStorage",
                              "torch.storage _load_from_bytes",
                              "torch._tensor _rebuild_from_type_v2",
                              "torch.serialization _get_layout",
                              "torch.torch_version TorchVersion",
                              "torch.jit._pickle build_intlist",
                              "_codecs encode",
                              "copy_reg _reconstructor",
                              "copyreg _reconstructor",
                              "argparse Namespace",
                              "functools partial",
                              "datetime datetime",
                              "datetime timedelta",
                              "pathlib Path",
                              "pathlib PosixPath",
                              "pathlib PurePosixPath",
                              "pathlib WindowsPath",
                              "pathlib PureWindowsPath",
                              "pathlib._local PosixPath",
                              "pathlib._local WindowsPath",
                              "uuid UUID",
                              "decimal Decimal",
                              "fractions Fraction",
                              "types SimpleNamespace",
                              "easydict EasyDict",
                              "addict.addict Dict"};

constexpr std::array builtins = {
    "set", "frozenset", "dict",  "list",    "tuple", "int",   "long",      "float",  "bool",
    "str", "unicode",   "bytes", "complex", "slice", "range", "bytearray", "object", "NoneType"};

// Classes of training programs; a module and what lies below it.
constexpr std::array modules = {"torch._utils",
                                "torch.nn",
                                "torch.optim",
                                "torch.distributed",
                                "torch.cuda.amp",
                                "torch.amp",
                                "numpy",
                                "pytorch_lightning",
                                "lightning",
                                "lightning_fabric",
                                "lightning_utilities",
                                "torchmetrics",
                                "omegaconf",
                                "hydra",
                                "typing",
                                "ldm",
                                "sgm",
                                "diffusers",
                                "transformers",
                                "tokenizers",
                                "accelerate",
                                "timm",
                                "basicsr",
                                "realesrgan",
                                "open_clip",
                                "wandb",
                                "ml_collections",
                                "yacs",
                                "fvcore",
                                "easydict",
                                "torch_ema",
                                "__main__"};

bool of_builtins(std::string_view module, std::string_view name) {
  return (module == "builtins" || module == "__builtin__") &&
         std::ranges::find(builtins, name) != builtins.end();
}

bool harmless(std::string_view callable) {
  const size_t space = callable.find(' ');
  const std::string_view module = callable.substr(0, space), name = callable.substr(space + 1);
  if (!torch_dtype(callable).empty() || of_builtins(module, name) ||
      std::ranges::find(names, callable) != names.end())
    return true;
  return name.find('.') == std::string_view::npos &&  // of protocol 4: an attribute's attribute
         std::ranges::any_of(modules, [&](std::string_view m) {
           return module.starts_with(m) && (module.size() == m.size() || module[m.size()] == '.');
         });
}

// "posix.system".
std::string dotted(std::string text) {
  std::ranges::replace(text, ' ', '.');
  return shown(text);
}

}  // namespace

std::string_view torch_dtype(std::string_view callable) {
  for (const auto& [name, dtype] : dtypes)
    if (name == callable) return dtype;
  return "";
}

void check_callables(const Pickle& pickle, const std::string& file) {
  for (const PickleNode& n : pickle.nodes) {
    if (n.kind == Kind::call)
      require(pickle[n.items[0]].kind == Kind::global,
              "torch: calls what is no named callable: refused  ", file);
    if (n.kind != Kind::global || harmless(n.text)) continue;
    const bool called = std::ranges::any_of(pickle.nodes, [&](const PickleNode& c) {
      return c.kind == Kind::call && pickle[c.items[0]].text == n.text;
    });
    require(!n.text.starts_with("__torch__."),
            "torch: must be a file of torch.save; this is a program of TorchScript (",
            dotted(n.text), ")  ", file);
    fail("torch: ", called ? "calls " : "names ", dotted(n.text),
         ": refused, for a checkpoint needs no such thing  ", file);
  }
}

}  // namespace ebb::io
