#include "passes/schedule/place_collectives.h"

#include <algorithm>
#include <array>
#include <functional>
#include <limits>

#include "ir/op.h"
#include "passes/uses.h"

namespace ebb {
namespace {

enum class Kind : uint8_t {
  ordinary,  // where it stood
  moved,  // emitted for its first reader: another shape of a value, what is made of gathered ones
  eager,  // a collective that begins when its operands are there
  ahead,  // a collective of parameters alone, which begins ahead of its reader
};

// Parts of a step: what is gathered for one may be gathered again for the other.
constexpr size_t parts = 2;

constexpr int64_t never = std::numeric_limits<int64_t>::max();

struct Member {
  size_t node = 0, part = 0;
  int64_t key = 0;  // eager: the node behind which its operands are there; ahead: its first reader
  int64_t limit = 0;  // eager: its first reader
  int64_t bytes = 0;
};

struct Bucket {
  std::vector<Member> members;
  int64_t bytes = 0;
  int64_t at = 0;  // eager: emitted behind this node; ahead: before it
};

class Placing {
 public:
  Placing(const Graph& g, const PlaceCollectives& how) : g_(g), how_(how), rw_(g) {
    if (!how.again_after.empty())
      end_ = static_cast<int64_t>(end_of(g, how.again_after).value_or(g.nodes().size()));
    classify();
    find_positions();
  }

  Graph run() {
    const std::vector<Bucket> eager = eager_buckets(), ahead = ahead_buckets();
    rw_.copy_sources();
    auto next_eager = eager.begin(), next_ahead = ahead.begin();
    for (int64_t i = -1; i < static_cast<int64_t>(g_.nodes().size()); ++i) {
      for (; next_ahead != ahead.end() && next_ahead->at <= i; ++next_ahead) emit(*next_ahead);
      if (i >= 0 && kind_[static_cast<size_t>(i)] == Kind::ordinary)
        emit(static_cast<size_t>(i), part_of(i));
      for (; next_eager != eager.end() && next_eager->at == i; ++next_eager) emit(*next_eager);
    }
    for (const auto* list : {&g_.outputs(), &g_.updates()})
      for (const NamedValue& v : *list) give(v.value, part_of(static_cast<int64_t>(kind_.size())));
    rw_.copy_ends();
    return rw_.take();
  }

 private:
  const Node& node(size_t i) const { return g_.nodes()[i]; }
  size_t part_of(int64_t i) const { return i >= end_ ? 1 : 0; }

  void classify() {
    const auto values = static_cast<size_t>(g_.values());
    given_.assign(values, false);
    gathered_.assign(values, false);
    for (const Source& s : g_.sources())
      given_[static_cast<size_t>(s.value)] = s.kind == Source::Kind::input;
    for (const Node& n : g_.nodes()) {
      const auto any = [&](const std::vector<bool>& of) {
        return std::ranges::any_of(n.in, [&](int32_t v) { return of[static_cast<size_t>(v)]; });
      };
      const bool given = any(given_) || n.in.empty();
      const bool gathered = !given && (n.op->collective || any(gathered_));
      for (const int32_t v : n.out) {
        given_[static_cast<size_t>(v)] = given;
        gathered_[static_cast<size_t>(v)] = gathered;
      }
      if (n.op->collective)
        kind_.push_back(given ? Kind::eager : Kind::ahead);
      else
        kind_.push_back(given && !n.op->renames ? Kind::ordinary : Kind::moved);
    }
  }

  // The node behind which a value is there.
  int64_t there(int32_t v) const {
    const int32_t p = g_.producer(v);
    if (p < 0 || !given_[static_cast<size_t>(v)]) return -1;
    const auto i = static_cast<size_t>(p);
    return kind_[i] == Kind::moved ? there(node(i).in[0]) : p;
  }

  // Whether a value is a result of such a collective, perhaps under another shape.
  bool of_eager(int32_t v) const {
    const int32_t p = g_.producer(v);
    if (p < 0) return false;
    const auto i = static_cast<size_t>(p);
    return kind_[i] == Kind::eager || (node(i).op->renames && of_eager(node(i).in[0]));
  }

  // By value and part of the step: the first node, of those that stay in place, that reads it.
  void find_positions() {
    first_.assign(static_cast<size_t>(g_.values()), {never, never});
    const auto read = [&](int32_t v, size_t part, int64_t by) {
      int64_t& first = first_[static_cast<size_t>(v)][part];
      first = std::min(first, by);
    };
    const auto outside = static_cast<int64_t>(kind_.size());
    for (const auto* list : {&g_.outputs(), &g_.updates()})
      for (const NamedValue& v : *list) read(v.value, part_of(outside), outside);
    for (size_t i = kind_.size(); i-- > 0;) {
      std::array<int64_t, parts> by = {never, never};
      if (kind_[i] == Kind::ordinary)
        by[part_of(static_cast<int64_t>(i))] = static_cast<int64_t>(i);
      else if (kind_[i] == Kind::eager)  // one of its operands' bucket is emitted before its own
        by[part_of(static_cast<int64_t>(i))] = static_cast<int64_t>(i) - 1;
      else
        for (const int32_t v : node(i).out)
          for (size_t p = 0; p < parts; ++p)
            by[p] = std::min(by[p], first_[static_cast<size_t>(v)][p]);
      for (const int32_t v : node(i).in)
        for (size_t p = 0; p < parts; ++p) read(v, p, by[p]);
    }
  }

  int64_t bytes_of(const Node& n) const {
    int64_t in = 0, out = 0;
    for (const int32_t v : n.in) in += g_.type(v).bytes();
    for (const int32_t v : n.out) out += g_.type(v).bytes();
    return std::max(in, out);
  }

  // Takes members as they come, those that nothing hides first: buckets grow from there.
  std::vector<Bucket> buckets_of(const std::vector<Member>& members) const {
    std::vector<Bucket> out;
    for (const Member& m : members) {
      const auto is_alike = [&](const Bucket& b) { return alike(b.members.front(), m); };
      const int64_t index = std::ranges::count_if(out, is_alike) - 1;
      const int64_t full = how_.bucket >> std::max<int64_t>(0, how_.growing - index);
      auto open = std::find_if(out.rbegin(), out.rend(), is_alike);
      if (open == out.rend() || open->at >= m.limit || open->bytes + m.bytes > full) {
        out.push_back({.at = m.key});
        open = out.rbegin();
      }
      open->members.push_back(m);
      open->bytes += m.bytes;
    }
    return out;
  }

  bool alike(const Member& a, const Member& b) const {
    return node(a.node).op == node(b.node).op && node(a.node).attrs == node(b.node).attrs &&
           a.part == b.part;
  }

  // The last key of a member that `m` may share a bucket with.
  int64_t last_key_beside(const Member& m, const std::vector<Member>& members) const {
    int64_t last = m.key;
    for (const Member& other : members)
      if (other.key < m.limit && alike(other, m)) last = std::max(last, other.key);
    return last;
  }

  // Small members are exchanged with the last of their kind.
  std::vector<Bucket> eager_buckets() const {
    std::vector<Member> members;
    for (size_t i = 0; i < kind_.size(); ++i) {
      if (kind_[i] != Kind::eager) continue;
      Member m{.node = i, .key = -1, .limit = static_cast<int64_t>(kind_.size())};
      for (const int32_t v : node(i).in)
        m.key = std::max(m.key, of_eager(v) ? static_cast<int64_t>(i) - 1 : there(v));
      for (const int32_t v : node(i).out)
        for (const int64_t first : first_[static_cast<size_t>(v)])
          m.limit = std::min(m.limit, first);
      m.bytes = bytes_of(node(i));
      members.push_back(m);
    }
    for (Member& m : members)
      if (m.bytes < how_.small) m.key = last_key_beside(m, members);
    std::ranges::stable_sort(members, std::greater<>(), &Member::key);
    std::vector<Bucket> out = buckets_of(members);
    std::ranges::stable_sort(out, {}, &Bucket::at);
    return out;
  }

  // Each begins where the one before its neighbour is first read. Small members of a part of the
  // step come with its first.
  std::vector<Bucket> ahead_buckets() const {
    std::vector<Member> members;
    std::array<int64_t, parts> first = {never, never};
    for (size_t i = 0; i < kind_.size(); ++i)
      for (size_t part = 0; kind_[i] == Kind::ahead && part < parts; ++part) {
        Member m{.node = i, .part = part, .key = never, .limit = never};
        for (const int32_t v : node(i).out)
          m.key = std::min(m.key, first_[static_cast<size_t>(v)][part]);
        if (m.key == never) continue;  // not read in this part
        m.bytes = bytes_of(node(i));
        first[part] = std::min(first[part], m.key);
        members.push_back(m);
      }
    for (Member& m : members)
      if (m.bytes < how_.small) m.key = first[m.part];
    std::ranges::stable_sort(members, {}, &Member::key);
    std::vector<Bucket> out = buckets_of(members);
    constexpr size_t ahead = 2;  // a bucket may wait for a kernel of hundreds of microseconds
    for (size_t b = out.size(); b-- > 0;) out[b].at = b < ahead ? -1 : out[b - ahead].at;
    return out;
  }

  // Makes sure that the new graph has the value as this part of the step reads it.
  void give(int32_t v, size_t part) {
    const int32_t p = g_.producer(v);
    if (p < 0) return;
    const auto i = static_cast<size_t>(p);
    if (gathered_[static_cast<size_t>(v)]) {
      std::array<Value, parts>& copies = copies_[static_cast<size_t>(v)];
      if (!copies[part] && kind_[i] == Kind::moved) emit(i, part);
      if (copies[part]) rw_.set(v, copies[part]);
    } else if (kind_[i] == Kind::moved && !emitted_[i]) {
      emit(i, part);
    }
  }

  void emit(size_t i, size_t part) {
    for (const int32_t v : node(i).in) give(v, part);
    rw_.copy(node(i));
    emitted_[i] = true;
    for (const int32_t v : node(i).out)
      if (gathered_[static_cast<size_t>(v)]) copies_[static_cast<size_t>(v)][part] = rw_.map(v);
  }

  void emit(const Bucket& b) {
    const Node& first = node(b.members.front().node);
    std::vector<Value> in;
    std::vector<int32_t> out;
    for (const Member& m : b.members) {
      for (const int32_t v : node(m.node).in) {
        give(v, m.part);
        in.push_back(rw_.map(v));
      }
      out.insert(out.end(), node(m.node).out.begin(), node(m.node).out.end());
    }
    const AtScope at(rw_.to(), first.at);
    const std::vector<Value> made = rw_.to().add(*first.op, first.attrs, in);
    for (size_t k = 0; k < out.size(); ++k) {
      rw_.set(out[k], made[k]);
      copies_[static_cast<size_t>(out[k])][b.members.front().part] = made[k];
    }
  }

  const Graph& g_;
  const PlaceCollectives& how_;
  Rewriter rw_;
  int64_t end_ = 0;                                // of the first part; 0: there is one part
  std::vector<Kind> kind_;                         // by node
  std::vector<bool> given_, gathered_;             // by value: of inputs; of `ahead` collectives
  std::vector<std::array<int64_t, parts>> first_;  // by value and part: its first reader
  std::vector<bool> emitted_ = std::vector<bool>(g_.nodes().size());
  std::vector<std::array<Value, parts>> copies_ =
      std::vector<std::array<Value, parts>>(static_cast<size_t>(g_.values()));
};

}  // namespace

Graph place_collectives(const Graph& g, const PlaceCollectives& how) {
  if (std::ranges::none_of(g.nodes(), [](const Node& n) { return n.op->collective; })) return g;
  return Placing(g, how).run();
}

}  // namespace ebb
