// KV writes, equal at every level; attention, close to the portable one and equal to the bit whatever shares its task.
#include <limits>
#include <numeric>

#include "check.h"

namespace tribar::check {
namespace {

constexpr int kLayers = 2;

// The KV memory of one sequence, its blocks in shuffled order.
struct Pages {
  std::vector<uint8_t> bytes;
  std::vector<int32_t> table;
  KvCache cache;

  Pages(Random& random, KvType type, int n_positions, int n_kv_heads, int head_dim)
      : table((n_positions + kBlock - 1) / kBlock) {
    const int n_blocks = static_cast<int>(table.size());
    std::iota(table.begin(), table.end(), 0);
    for (int i = n_blocks - 1; i > 0; --i) std::swap(table[i], table[random.whole(0, i)]);
    cache = {type, kLayers, n_blocks, n_kv_heads, head_dim, nullptr};
    bytes.resize(kLayers * n_blocks * cache.block_bytes());
    cache.data = bytes.data();
  }
  Pages(const Pages&) = delete;
  void write(const Kernels& level, int position, const float* k, const float* v) {
    level.kv_write(cache, 1, table[position / kBlock], position % kBlock, k, v);
  }
};

// Queries [n][heads][head_dim] at `position` and on.
struct Queries {
  int n, heads, head_dim, position, window, kv_head;
  float softcap;
  std::vector<float> q;
};

// Of queries [first, first + n) and heads [head, head + heads), by all spans up to the last query's.
std::vector<float> attend(const Kernels& level, const Pages& pages, const Queries& queries, int first, int n, int head,
                          int heads) {
  const int head_dim = queries.head_dim, stride = queries.heads * head_dim;
  std::vector<float> out(static_cast<size_t>(n) * heads * head_dim, 99.0f);
  AttentionTask task;
  task.layer = 1, task.kv_head = queries.kv_head, task.block_table = pages.table.data();
  task.n_queries = n, task.position = queries.position + first, task.window = queries.window;
  task.q = queries.q.data() + first * stride + head * head_dim, task.q_stride = stride, task.n_heads = heads;
  task.scale = 1 / std::sqrt(static_cast<float>(head_dim)), task.softcap = queries.softcap;
  task.out = out.data(), task.out_stride = heads * head_dim;
  const int n_spans = (task.position + n - 1) / kSpan + 1;
  const size_t n_rows = static_cast<size_t>(n) * heads;
  std::vector<float> max(n_spans * n_rows), sum(max.size()), acc(max.size() * head_dim);
  for (int span = 0; span < n_spans; ++span)
    level.attend_span(pages.cache, task, span, max.data() + span * n_rows, sum.data() + span * n_rows,
                      acc.data() + span * n_rows * head_dim);
  level.merge_spans(task, head_dim, n_spans, max.data(), sum.data(), acc.data());
  return out;
}

// What the arithmetic may add: softmax weights are bf16, or 15 bits, or fp32.
double room(KvType type) { return type == KvType::Bf16 ? 6e-3 : type == KvType::F32 ? 5e-6 : 1e-3; }

void check_close(const std::string& what, const std::vector<float>& got, const std::vector<float>& expected, double space) {
  for (size_t i = 0; i < got.size(); ++i) require_close(what, got[i], expected[i], space);
}

// Law 15: each query alone, and each head alone, to the bit.
void check_company(const Kernels& level, const Pages& pages, const Queries& queries, const std::vector<float>& together) {
  const int head_dim = queries.head_dim, row = queries.heads * head_dim;
  for (int i = 0; i < queries.n; ++i) {
    const std::vector<float> here(together.begin() + i * row, together.begin() + (i + 1) * row);
    require_same("attention: a query alone", attend(level, pages, queries, i, 1, 0, queries.heads), here);
  }
  for (int head = 0; head < queries.heads; ++head) {
    std::vector<float> here;
    for (int i = 0; i < queries.n; ++i) {
      const auto begin = together.begin() + i * row + head * head_dim;
      here.insert(here.end(), begin, begin + head_dim);
    }
    require_same("attention: a head alone", attend(level, pages, queries, 0, queries.n, head, 1), here);
  }
}

void check_poison(const Kernels& level, const Pages& pages, Queries queries, const std::vector<float>& clean) {
  const size_t head_dim = queries.head_dim, victim = queries.n * queries.heads / 2 * head_dim;
  queries.q[victim + 3] = std::nanf("");
  std::vector<float> poisoned = attend(level, pages, queries, 0, queries.n, 0, queries.heads);
  for (size_t i = victim; i < victim + head_dim; ++i) {
    require(std::isnan(poisoned[i]), "attention: poison is lost");
    poisoned[i] = clean[i];
  }
  require_same("attention: beside a poisoned query", poisoned, clean);
}

// Writes the same tokens by both levels and compares the memories; gives the largest V in magnitude.
float fill(const Kernels& level, const Kernels& portable, Random& random, Pages& pages, Pages& other, int n_positions) {
  const size_t size = static_cast<size_t>(pages.cache.n_kv_heads) * pages.cache.head_dim;
  float largest = 0;
  for (int position = 0; position < n_positions; ++position) {
    std::vector<float> k = random.normals(size), v = random.normals(size);
    if (position % 7 == 3) {
      k[random.whole(0, static_cast<int>(size) - 1)] = std::numeric_limits<float>::infinity();
      v[random.whole(0, static_cast<int>(size) - 1)] = std::nanf("");
    }
    for (const float x : v) largest = std::fabs(x) > largest ? std::fabs(x) : largest;
    pages.write(level, position, k.data(), v.data());
    other.write(portable, position, k.data(), v.data());
  }
  require_equal("kv_write", pages.bytes, other.bytes);
  return largest;
}

void check_type(const Kernels& level, const Kernels& portable, Random& random, KvType type) {
  const int head_dim = random.one_of({16, 48, 64, 80, 128, 256}), n_kv_heads = random.whole(1, 3);
  Queries queries{random.whole(1, kQueryTile), random.whole(1, 7), head_dim, random.one_of({0, 5, 63, 100, 505, 700}),
                  random.one_of({0, 0, 1, 7, 100, 600}), random.whole(0, n_kv_heads - 1),
                  random.one_of({0.0f, 0.0f, 5.0f, 50.0f}), {}};
  queries.q = random.normals(static_cast<size_t>(queries.n) * queries.heads * head_dim, 2);
  const int n_positions = queries.position + queries.n;
  Random order(random.whole(0, 1 << 20)), same_order = order;
  Pages pages(order, type, n_positions, n_kv_heads, head_dim), other(same_order, type, n_positions, n_kv_heads, head_dim);
  const float largest = fill(level, portable, random, pages, other, n_positions);
  const std::vector<float> out = attend(level, pages, queries, 0, queries.n, 0, queries.heads);
  check_close("attention", out, attend(portable, pages, queries, 0, queries.n, 0, queries.heads), room(type) * largest);
  check_company(level, pages, queries, out);
  check_poison(level, pages, queries, out);
}

}  // namespace

void check_attention(const Kernels& level, const Kernels& portable) {
  Random random(4);
  for (const KvType type : {KvType::Bf16, KvType::F32, KvType::Int8})
    for (int i = 0; i < 12; ++i) check_type(level, portable, random, type);
}

}  // namespace tribar::check
