// Functions for other programs: gradients against differences in double, and calls with memory that
// lies in any way against the reference.
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "backends.h"
#include "base/random.h"
#include "functions/library.h"
#include "functions/strided.h"
#include "reference.h"
#include "support/files.h"
#include "tolerance.h"

namespace ebb::functions::functions_test {
namespace {

using test::evaluate_reference;

struct Case {
  const char* label;
  const char* function;
  std::vector<Shape> shapes;  // of the operands; of rank 0: absent
  std::vector<std::pair<const char*, AttributeValue>> attributes = {};
};

std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.label; }

std::vector<Case> cases() {
  using T = std::string;
  const Shape none{};
  return {
      {"rms_norm", "rms_norm", {{3, 5, 24}, {24}, {24}}, {{"offset", 1.0}}},
      {"rms_norm_alone", "rms_norm", {{7, 33}, none, none}},
      {"layer_norm", "layer_norm", {{3, 40}, {40}, {40}}},
      {"ada_norm", "ada_norm", {{2, 5, 24}, {2, 24}, {2, 1, 24}, none, none}},
      {"ada_norm_by_token",
       "ada_norm",
       {{2, 5, 24}, {2, 5, 24}, {24}, {24}, none},
       {{"kind", T("rms")}}},
      {"add_norm", "add_norm", {{2, 5, 24}, {2, 5, 24}, {2, 24}, {2, 24}, {2, 24}, none, none}},
      {"add_norm_alone",
       "add_norm",
       {{6, 24}, {6, 24}, none, none, none, {24}, none},
       {{"kind", T("rms")}}},
      {"group_norm",
       "group_norm",
       {{2, 5, 3, 24}, {24}, {24}},
       {{"groups", int64_t{4}}, {"act", T("silu")}}},
      {"softmax", "softmax", {{3, 5, 17}}},
      {"rope", "rope", {{2, 5, 3, 16}, {5, 8}, {5, 8}}},
      {"rope_doubled", "rope", {{2, 5, 3, 16}, {2, 5, 16}, {2, 5, 16}}, {{"style", T("half")}}},
      {"qk_rope",
       "qk_rope",
       {{2, 5, 3, 16}, {2, 5, 1, 16}, {2, 5, 16}, {2, 5, 16}},
       {{"style", T("half")}}},
      {"qk_rope_without_heads", "qk_rope", {{2, 5, 16}, {2, 5, 8}, {5, 4}, {5, 4}}},
      {"qk_norm_rope",
       "qk_norm_rope",
       {{1, 5, 3, 64}, {1, 5, 1, 64}, {64}, {64}, {5, 64}, {5, 64}}},
      {"qk_norm_across",
       "qk_norm_rope",
       {{2, 5, 3, 16}, {2, 5, 3, 16}, {48}, {48}, none, none},
       {{"across_heads", true}}},
      {"gated", "gated", {{3, 5, 24}, none}, {{"act", T("gelu")}}},
      {"gated_two", "gated", {{3, 24}, {3, 24}}, {{"gate", T("first")}}},
      {"linear_gated", "linear_gated", {{3, 5, 16}, {24, 16}, {24}}},
      {"linear_act", "linear_act", {{5, 16}, {24, 16}, none}},
      {"attention", "attention", {{2, 9, 2, 16}, {2, 7, 1, 16}, {2, 7, 1, 16}, none}},
      {"attention_causal",
       "attention",
       {{1, 9, 2, 16}, {1, 9, 2, 16}, {1, 9, 2, 16}, {1, 1, 9, 9}},
       {{"causal", true}}},
      {"map",
       "map",
       {{4, 9}, {9}, {4, 1}},
       {{"formula", T("silu(x) * y + 0.1 * z")}, {"names", T("x,y,z")}}},
  };
}

std::vector<AttributeValue> values_of(const Function& f, const Case& c, int64_t needs = 0) {
  std::vector<AttributeValue> out;
  for (const Attribute& a : f.attributes) {
    out.push_back(a.name == "needs" ? AttributeValue(needs) : a.value);
    for (const auto& [name, value] : c.attributes)
      if (a.name == name) out.back() = value;
  }
  return out;
}

std::vector<double> noise(int64_t count, uint64_t seed) {
  std::vector<double> out;
  for (int64_t i = 0; i < count; ++i)
    out.push_back(uniform_from(random_block({.seed = seed}, static_cast<uint64_t>(i))[0]) * 2 - 1);
  return out;
}

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

// The graph of a function of f32 operands, and its values in double.
struct Evaluated {
  Evaluated(const Function& f, std::span<const Shape> shapes,
            std::span<const AttributeValue> attributes, std::vector<std::vector<double>> data) {
    std::vector<Value> in;
    test::RefInputs inputs;
    for (size_t i = 0, k = 0; i < shapes.size(); ++i) {
      in.emplace_back();
      if (shapes[i].rank() == 0) continue;
      const std::string name = str("x", i);
      in.back() = graph.input(name, {DType::f32, shapes[i]});
      inputs[name] = {shapes[i], data[k++]};
    }
    const std::vector<Value> results = f.build({graph, in, f.attrs(attributes)});
    const auto values = evaluate_reference(graph, inputs);
    for (const Value& r : results) out.push_back(values[static_cast<size_t>(r.id)]);
  }
  Graph graph;
  std::vector<RefArray> out;
};

class OfFunctions : public ::testing::TestWithParam<Case> {
 protected:
  const Case& c = GetParam();
  const Function& f = find_function(c.function);
  std::vector<std::vector<double>> operands() const {
    std::vector<std::vector<double>> out;
    for (const Shape& s : c.shapes)
      if (s.rank() > 0) out.push_back(noise(s.numel(), 11 + out.size()));
    return out;
  }
};

TEST_P(OfFunctions, gradients_are_differences) {
  const auto x = operands();
  const int64_t needs = (int64_t{1} << c.shapes.size()) - 1;
  const Evaluated y(f, c.shapes, values_of(f, c), x);
  // The gradient of the first result alone: the others' is absent.
  const Function& b = find_function(str(c.function, "_backward"));
  std::vector<Shape> shapes = {y.out[0].shape};
  std::vector<std::vector<double>> data = {noise(y.out[0].shape.numel(), 5)};
  for (size_t k = 1; k < y.out.size(); ++k) shapes.emplace_back();
  if (f.gradient)
    for (const RefArray& r : y.out) {
      shapes.push_back(r.shape);
      data.push_back(r.v);
    }
  shapes.insert(shapes.end(), c.shapes.begin(), c.shapes.end());
  data.insert(data.end(), x.begin(), x.end());
  const Evaluated dx(b, shapes, values_of(b, c, needs), data);
  ASSERT_EQ(dx.out.size(), x.size());
  constexpr double step = test::difference_step;
  for (size_t i = 0; i < x.size(); ++i) {
    const std::vector<double> way = noise(std::ssize(x[i]), 77 + i);
    const auto moved = [&](double by) {
      auto at = x;
      for (size_t k = 0; k < way.size(); ++k) at[i][k] += by * way[k];
      return dot(Evaluated(f, c.shapes, values_of(f, c), at).out[0].v, data[0]);
    };
    const double numeric = (moved(step) - moved(-step)) / (2 * step);
    EXPECT_NEAR(dot(dx.out[i].v, way), numeric,
                test::difference_tolerance * 10 * (std::fabs(numeric) + 1))
        << "operand " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(all, OfFunctions, ::testing::ValuesIn(cases()),
                         [](const auto& info) { return std::string(info.param.label); });

TEST(functions, schemas__are_those_of_torch) {
  EXPECT_EQ(schema(find_function("softmax")), "softmax(Tensor x) -> Tensor");
  EXPECT_EQ(schema(find_function("softmax_backward")),
            "softmax_backward(Tensor? grad_y, Tensor y, Tensor x, int needs=0) -> Tensor[]");
  EXPECT_EQ(schema(find_function("gated")),
            "gated(Tensor x, Tensor? other, str act=\"silu\", str gate=\"second\") -> Tensor");
  EXPECT_EQ(schema(find_function("attention")),
            "attention(Tensor q, Tensor k, Tensor v, Tensor? bias, float scale=0, "
            "bool causal=False) -> (Tensor, Tensor)");
  EXPECT_TRUE(schema(find_function("adamw"))
                  .starts_with("adamw(Tensor(a!) p, Tensor(b!) m, Tensor(c!) v, Tensor grad, "));
  EXPECT_TRUE(schema(find_function("adamw")).ends_with(") -> ()"));
  EXPECT_EQ(numbered_schema(find_function("gated")),
            "gated_numbered(Tensor x, Tensor? other, int attributes) -> Tensor");
  for (const char* without_gradients : {"gated_backward", "adamw"})
    EXPECT_EQ(numbered_schema(find_function(without_gradients)), "");
  EXPECT_THROW(find_function("rms_norms"), Error);
}

// ---- memory that lies in any way ---------------------------------------------------------------

struct Layout {
  std::vector<int64_t> sizes, strides;
};

std::vector<Layout> layouts() {
  return {
      {{4, 6}, {6, 1}},        {{4, 6}, {1, 4}},        {{4, 6}, {18, 1}}, {{4, 6}, {0, 1}},
      {{4, 1}, {1, 7}},        {{4, 6}, {0, 0}},        {{4, 6}, {12, 2}}, {{2, 3, 4}, {4, 8, 1}},
      {{2, 1, 4}, {24, 4, 1}}, {{2, 3, 4}, {60, 0, 5}}, {{1, 1}, {5, 9}},  {{}, {}},
  };
}

TEST(StorageView, values__are_those_of_the_strides) {
  for (const Layout& l : layouts()) {
    const auto view = StorageView::of(l.sizes, l.strides);
    ASSERT_TRUE(view) << Shape(l.sizes);
    Graph g;
    const Value v = view->input(g, "x", DType::f32);
    ASSERT_EQ(v.shape(), Shape(l.sizes));
    const Shape storage = g.sources()[0].kind == Source::Kind::input ? g.type(0).shape : Shape{};
    std::vector<double> memory(static_cast<size_t>(storage.numel()));
    std::iota(memory.begin(), memory.end(), 0);
    const RefArray got =
        evaluate_reference(g, {{"x", {storage, memory}}})[static_cast<size_t>(v.id)];
    const std::vector<int64_t> dense = Shape(l.sizes).strides();
    for (int64_t i = 0; i < Shape(l.sizes).numel(); ++i) {
      int64_t at = 0;
      for (size_t d = 0; d < l.sizes.size(); ++d) at += i / dense[d] % l.sizes[d] * l.strides[d];
      EXPECT_EQ(got.v[static_cast<size_t>(i)], static_cast<double>(at)) << Shape(l.sizes);
    }
  }
}

TEST(StorageView, what_overlaps_or_divides_no_stride__needs_a_copy) {
  EXPECT_FALSE(StorageView::of(std::vector<int64_t>{4, 6}, std::vector<int64_t>{3, 1}));
  EXPECT_FALSE(StorageView::of(std::vector<int64_t>{4, 6}, std::vector<int64_t>{13, 2}));
  EXPECT_FALSE(StorageView::of(std::vector<int64_t>{4, 6}, std::vector<int64_t>{1, 1}));
}

// ---- calls --------------------------------------------------------------------------------------

class LibraryOn : public test::OnEachBackend {
 protected:
  // Cleared on the stream of the calls, in order with them.
  std::shared_ptr<Buffer> allocate(int64_t bytes) const {
    std::shared_ptr<Buffer> out;
    context_.device->run_on(nullptr, [&] { out = context_.device->allocate(bytes); });
    return out;
  }
  // Memory of the device with these floats.
  void* put(const std::vector<float>& data) {
    const Tensor host(DType::f32, {std::ssize(data)});
    std::memcpy(host.raw(), data.data(), data.size() * sizeof(float));
    kept_.emplace_back(host.type(), allocate(host.bytes()));
    context_.device->run_on(nullptr, [&] { context_.device->copy(host, kept_.back()); });
    return kept_.back().raw();
  }
  std::vector<float> get(void* from, int64_t count) {
    for (const Tensor& t : kept_)
      if (t.raw() == from) {
        const Tensor host(DType::f32, {count});
        context_.device->run_on(nullptr, [&] {
          context_.device->copy(t.at({DType::f32, {count}}, 0), host);
        });
        const auto v = host.span<float>();
        return {v.begin(), v.end()};
      }
    return {};
  }
  std::vector<Tensor> kept_;
};

TEST_P(LibraryOn, calls__give_the_references_values) {
  Library library(context_);
  for (const Case& c : cases()) {
    const Function& f = find_function(c.function);
    std::vector<std::vector<double>> data;
    std::vector<std::vector<int64_t>> strides;
    std::vector<TensorRef> refs;
    std::vector<void*> in, out;
    for (const Shape& s : c.shapes) strides.push_back(s.strides());
    for (size_t i = 0; i < c.shapes.size(); ++i) {
      const Shape& s = c.shapes[i];
      TensorRef r{.present = s.rank() > 0, .sizes = s.sizes(), .strides = strides[i]};
      refs.push_back(r);
      in.push_back(nullptr);
      if (!r.present) continue;
      data.push_back(noise(s.numel(), 11 + data.size()));
      in.back() = put({data.back().begin(), data.back().end()});
    }
    const auto attributes = values_of(f, c);
    const auto p = library.prepare(f, refs, Attributes(attributes));
    EXPECT_EQ(p, library.prepare(f, refs, Attributes(attributes))) << c.label;
    for (const Type& t : p->results())
      out.push_back(put(std::vector<float>(static_cast<size_t>(t.shape.numel()), 99)));
    const auto workspace = allocate(p->workspace_bytes());
    p->run(in, out, workspace->data(), nullptr);
    const Evaluated want(f, c.shapes, attributes, data);
    for (size_t k = 0; k < out.size(); ++k) {
      const auto got = get(out[k], want.out[k].shape.numel());
      for (size_t i = 0; i < got.size(); ++i)
        ASSERT_NEAR(got[i], want.out[k].v[i], 2e-5 * (1 + std::fabs(want.out[k].v[i])))
            << c.label << " result " << k << " element " << i;
    }
  }
}

TEST_P(LibraryOn, no_elements__run_nothing) {
  Library library(context_);
  const std::vector<int64_t> sizes = {0, 16}, strides = {16, 1};
  const TensorRef x{.present = true, .sizes = sizes, .strides = strides};
  const Function& f = find_function("rms_norm");
  const std::vector<TensorRef> in = {x, {}, {}};
  const auto p = library.prepare(f, in, Attributes(values_of(f, {})));
  EXPECT_TRUE(p->empty());
  EXPECT_EQ(p->results()[0].shape, (Shape{0, 16}));
}

TEST_P(LibraryOn, what_does_not_fit__is_an_error_that_names_it) {
  Library library(context_);
  const std::vector<int64_t> sizes = {4, 16}, strides = {16, 1}, narrow = {15}, one = {1};
  const std::vector<TensorRef> in = {{.present = true, .sizes = sizes, .strides = strides},
                                     {.present = true, .sizes = narrow, .strides = one},
                                     {}};
  const Function& f = find_function("rms_norm");
  try {
    library.prepare(f, in, Attributes(values_of(f, {})));
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("weight must be [16] (got [15])"), std::string::npos)
        << e.what();
  }
}

TEST_P(LibraryOn, operands_that_are_missing__are_errors) {
  Library library(context_);
  const std::vector<int64_t> sizes = {4, 16}, strides = {16, 1}, no_columns = {4, 0};
  const TensorRef x{.present = true, .sizes = sizes, .strides = strides};
  const TensorRef empty{.present = true, .sizes = no_columns, .strides = strides};
  const auto error_of = [&](const char* name, const std::vector<TensorRef>& in) -> std::string {
    try {
      const Function& f = find_function(name);
      library.prepare(f, in, Attributes(values_of(f, {})));
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_EQ(error_of("rms_norm", {x}), "rms_norm: takes 3 operands (got 1)");
  EXPECT_EQ(error_of("rms_norm", {{}, x, {}}), "rms_norm: operand 0 is missing");
  EXPECT_EQ(error_of("map", {}), "map: takes 0 operands and a list (got 0)");
  EXPECT_EQ(error_of("linear_act", {empty, empty, {}}), "linear: x needs columns (got f32[4,0])");
}

// softmax of [rows, 8]
std::shared_ptr<const Prepared> softmax_of(Library& library, int64_t rows) {
  const std::vector<int64_t> sizes = {rows, 8}, strides = {8, 1};
  const std::vector<TensorRef> in = {{.present = true, .sizes = sizes, .strides = strides}};
  return library.prepare(find_function("softmax"), in, Attributes());
}

TEST_P(LibraryOn, what_was_used_last__is_kept) {
  Library library(context_, 3);
  std::vector<std::weak_ptr<const Prepared>> made;
  for (const int64_t rows : {1, 2, 3}) made.push_back(softmax_of(library, rows));
  EXPECT_EQ(softmax_of(library, 1), made[0].lock());
  softmax_of(library, 4);
  EXPECT_EQ(library.kept(), 3U);
  EXPECT_TRUE(made[1].expired());
  EXPECT_FALSE(made[0].expired());
  EXPECT_FALSE(made[2].expired());
  EXPECT_NE(softmax_of(library, 2), nullptr) << "it is made again";
}

TEST_P(LibraryOn, what_is_in_use__stays_beyond_the_limit) {
  Library library(context_, 1);
  auto first = softmax_of(library, 1);
  const auto second = softmax_of(library, 2);
  EXPECT_EQ(library.kept(), 2U);
  EXPECT_EQ(first, softmax_of(library, 1));
  first = nullptr;
  const auto third = softmax_of(library, 3);
  EXPECT_EQ(library.kept(), 2U);
  EXPECT_EQ(second, softmax_of(library, 2));
  EXPECT_EQ(third, softmax_of(library, 3));
}

TEST_P(LibraryOn, what_was_recorded__stays_and_is_not_counted) {
  Library library(context_, 2);
  softmax_of(library, 1)->set_recorded();
  for (const int64_t rows : {2, 3, 4}) softmax_of(library, rows);
  EXPECT_EQ(library.kept(), 3U);
  EXPECT_TRUE(softmax_of(library, 1)->recorded());
}

TEST(Attributes, choices_and_dtypes__are_texts_of_the_schema) {
  const Function& f = find_function("ada_norm");
  EXPECT_NE(schema(f).find("str kind=\"layer\""), std::string::npos) << schema(f);
  EXPECT_NE(schema(f).find("str rounding=\"once\", str dtype=\"\""), std::string::npos)
      << schema(f);
  using T = std::string;
  const auto texts = [&](const char* kind, const char* rounding, const char* dtype) {
    const AttributeValue values[] = {T(kind), 1e-6, T(rounding), T(dtype)};
    return f.attrs(values).text();
  };
  EXPECT_EQ(texts("rms", "llama", "bf16"), "{kind=rms eps=1e-06 rounding=llama dtype=bf16}");
  EXPECT_EQ(testing::error_of([&] { texts("max", "once", ""); }),
            "ada_norm: kind must be rms or layer (got 'max')");
  EXPECT_EQ(testing::error_of([&] { texts("rms", "twice", ""); }),
            "ada_norm: rounding must be once, diffusers or llama (got 'twice')");
  EXPECT_EQ(testing::error_of([&] {
              texts("rms", "once", "wide");
            }).find("ada_norm: dtype: unknown name"),
            0U);
}

TEST(Attributes, equal_ones_of_a_function__have_one_number) {
  const Function& f = find_function("rms_norm");
  using T = std::string;
  const auto attributes = [](double eps, const T& rounding) {
    return Attributes({eps, 0.0, T(rounding), T()});
  };
  const int64_t number = number_of(f, attributes(0.25, "once"));
  EXPECT_EQ(number_of(f, attributes(0.25, "once")), number);
  EXPECT_NE(number_of(f, attributes(0.5, "once")), number);
  EXPECT_NE(number_of(f, attributes(0.25, "a text longer than a word")), number);
  EXPECT_EQ(std::get<double>(attributes_of(f, number).values[0]), 0.25);
  EXPECT_THROW(attributes_of(find_function("layer_norm"), number), Error);
  EXPECT_THROW(attributes_of(f, -1), Error);
  EXPECT_THROW(attributes_of(f, most_numbered), Error);
  EXPECT_THROW(number_of(f, Attributes({int64_t{1}, 0.0, T(), T()})), Error);
}

INSTANTIATE_TEST_SUITE_P(cpu, LibraryOn, ::testing::ValuesIn(test::only("cpu")));
INSTANTIATE_TEST_SUITE_P(cuda, LibraryOn, ::testing::ValuesIn(test::only("cuda")));

}  // namespace
}  // namespace ebb::functions::functions_test
