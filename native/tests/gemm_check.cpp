// Matrix products against fp64, level against level to the bit where the arithmetic is exact, and rows alone against
// rows in company.
#include "../src/floats.h"
#include "check.h"

namespace tribar::check {
namespace {

enum class Kind { Int4, Int8, Int8Fine, Bf16, F32 };
// Exact: small whole numbers, whose sums no rounding touches. Extreme: codes of 0 or the largest, activations +-127.
enum class Values { Exact, Random, Extreme };

WeightType weight_type(Kind kind) {
  switch (kind) {
    case Kind::Int4: return WeightType::Int4;
    case Kind::Int8:
    case Kind::Int8Fine: return WeightType::Int8;
    case Kind::Bf16: return WeightType::Bf16;
    default: return WeightType::F32;
  }
}

// A matrix and rows for it, with the products in fp64 and the sum of what the fp32 sums add up, in magnitude.
struct Product {
  Kind kind;
  Values values;
  int m, n, k;
  std::vector<uint8_t> packed;
  std::vector<int8_t> q, q_low;
  std::vector<float> scale, sum, f32;
  std::vector<uint16_t> bf16;
  std::vector<double> expected, magnitude;  // [m][columns padded to 16]

  int n_columns() const { return (n + kStrip - 1) / kStrip * kStrip; }
  size_t n_groups() const { return k / kGroup; }
  bool is_integer() const { return kind != Kind::Bf16 && kind != Kind::F32; }
  Matrix matrix() const { return {weight_type(kind), n, k, packed.data()}; }
  Activations rows(int first, int n_rows) const {
    const size_t at = static_cast<size_t>(first) * k, group = first * n_groups();
    return {n_rows, k, q.data() + at, kind == Kind::Int8Fine ? q_low.data() + at : nullptr, scale.data() + group,
            sum.data() + group, bf16.data() + at, f32.data() + at};
  }
};

float small_or_normal(Random& random, const Product& p) {
  return p.values == Values::Exact ? static_cast<float>(random.whole(-3, 3)) : random.normal();
}

void fill_rows(Random& random, Product& p) {
  const size_t size = static_cast<size_t>(p.m) * p.k;
  p.q.resize(size), p.q_low.resize(size), p.bf16.resize(size), p.f32.resize(size);
  p.scale.resize(p.m * p.n_groups()), p.sum.resize(p.scale.size());
  for (size_t i = 0; i < size; ++i) {
    const bool is_extreme = p.values == Values::Extreme;
    p.q[i] = static_cast<int8_t>(is_extreme ? random.one_of({-127, 127}) : random.whole(-127, 127));
    p.q_low[i] = static_cast<int8_t>(is_extreme ? random.one_of({-64, 64}) : random.whole(-64, 64));
    p.bf16[i] = bf16_from_float(small_or_normal(random, p));
    p.f32[i] = small_or_normal(random, p);
  }
  for (size_t group = 0; group < p.scale.size(); ++group) {
    double total = 0;
    for (int i = 0; i < kGroup; ++i)
      total += p.q[group * kGroup + i] + (p.kind == Kind::Int8Fine ? p.q_low[group * kGroup + i] / 128.0 : 0.0);
    p.scale[group] = p.values == Values::Exact ? 1.0f : std::fabs(random.normal()) * 0.05f;
    p.sum[group] = static_cast<float>(p.scale[group] * total);
  }
}

void put_fp16(uint8_t* at, float value) {
  const uint16_t bits = fp16_from_float(value);
  std::memcpy(at, &bits, 2);
}

void fill_integer_group(Random& random, const Product& p, uint8_t* group) {
  const size_t n_codes = p.kind == Kind::Int4 ? 256 : 512;
  for (size_t i = 0; i < n_codes; ++i)
    group[i] = static_cast<uint8_t>(p.values == Values::Extreme ? random.one_of({0, 15, 240, 255}) : random.whole(0, 255));
  for (int c = 0; c < kStrip; ++c) {
    const bool is_exact = p.values == Values::Exact;
    put_fp16(group + n_codes + 2 * c, is_exact ? random.one_of({-1.0f, 1.0f}) : random.normal() * 0.01f);
    put_fp16(group + n_codes + 32 + 2 * c, is_exact ? static_cast<float>(random.whole(-2, 2)) : random.normal() * 0.1f);
  }
}

void fill_weights(Random& random, Product& p) {
  p.packed.resize(p.n_columns() / kStrip * p.matrix().strip_bytes());
  for (size_t at = 0; at < p.packed.size(); at += group_bytes(weight_type(p.kind))) {
    uint8_t* group = p.packed.data() + at;
    if (p.is_integer()) fill_integer_group(random, p, group);
    for (int i = 0; !p.is_integer() && i < kGroup * kStrip; ++i) {
      const float value = small_or_normal(random, p);
      const uint16_t bits = bf16_from_float(value);
      if (p.kind == Kind::Bf16) std::memcpy(group + 2 * i, &bits, 2);
      else std::memcpy(group + 4 * i, &value, 4);
    }
  }
}

// Column c, input i of a group, as matrix.h has it.
int code_at(Kind kind, const uint8_t* group, int c, int i) {
  if (kind != Kind::Int4) return group[64 * (i / 4) + 4 * c + i % 4];
  return group[64 * (i / 8) + 4 * c + i % 4] >> (i / 4 % 2 ? 4 : 0) & 15;
}
double float_at(Kind kind, const uint8_t* group, int c, int i) {
  uint16_t bits;
  std::memcpy(&bits, group + 2 * (32 * (i / 2) + 2 * c + i % 2), 2);
  if (kind == Kind::Bf16) return bf16_to_float(bits);
  float value;
  std::memcpy(&value, group + 4 * (16 * i + c), 4);
  return value;
}
double fp16_at(const uint8_t* at) {
  uint16_t bits;
  std::memcpy(&bits, at, 2);
  return fp16_to_float(bits);
}

void add_group(Product& p, const uint8_t* group, int row, int c, size_t g, size_t out) {
  const size_t first = static_cast<size_t>(row) * p.k + g * kGroup, constants = row * p.n_groups() + g;
  const auto add = [&](double term) {
    p.expected[out] += term;
    p.magnitude[out] += std::fabs(term);
  };
  if (!p.is_integer()) {
    for (int i = 0; i < kGroup; ++i)
      add(float_at(p.kind, group, c, i) * (p.kind == Kind::Bf16 ? bf16_to_float(p.bf16[first + i]) : p.f32[first + i]));
    return;
  }
  int32_t high = 0, low = 0;
  for (int i = 0; i < kGroup; ++i) {
    high += code_at(p.kind, group, c, i) * p.q[first + i];
    low += code_at(p.kind, group, c, i) * p.q_low[first + i];
  }
  const uint8_t* d = group + (p.kind == Kind::Int4 ? 256 : 512) + 2 * c;
  add(fp16_at(d) * p.scale[constants] * high);
  if (p.kind == Kind::Int8Fine) add(fp16_at(d) * p.scale[constants] * low / 128);
  add(fp16_at(d + 32) * p.sum[constants]);
}

Product random_product(Random& random, Kind kind, Values values) {
  Product p{kind, values, random.whole(1, 19), random.whole(1, 70), kGroup * random.whole(1, 6), {}, {}, {}, {}, {}, {}, {}, {}, {}};
  fill_rows(random, p);
  fill_weights(random, p);
  p.expected.assign(static_cast<size_t>(p.m) * p.n_columns(), 0.0);
  p.magnitude = p.expected;
  const Matrix matrix = p.matrix();
  for (int row = 0; row < p.m; ++row)
    for (int column = 0; column < p.n_columns(); ++column)
      for (size_t g = 0; g < p.n_groups(); ++g)
        add_group(p, matrix.strip(column / kStrip) + g * group_bytes(matrix.type), row, column % kStrip, g,
                  static_cast<size_t>(row) * p.n_columns() + column);
  return p;
}

// Rows [first, first + n_rows); what is not written stays 99.
std::vector<float> multiply(const Kernels& level, const Product& p, int first, int n_rows, Epilogue epilogue,
                            const float* bias, int n) {
  Matrix matrix = p.matrix();
  matrix.n = n;
  const bool is_gated = epilogue == Epilogue::GatedSilu || epilogue == Epilogue::GatedGelu;
  const int stride = is_gated ? n / 2 : n + 3;
  std::vector<float> out(static_cast<size_t>(n_rows) * stride, 99.0f);
  level.gemm(matrix, p.rows(first, n_rows), 0, matrix.n_strips(), {out.data(), stride, bias, epilogue});
  return out;
}

void check_sums(const std::string& what, const Product& p, const std::vector<float>& out, double start, const float* bias) {
  const size_t stride = p.n + 3;
  for (int row = 0; row < p.m; ++row) {
    for (int column = 0; column < p.n; ++column) {
      const size_t at = static_cast<size_t>(row) * p.n_columns() + column;
      const double more = start + (bias ? bias[column] : 0.0f);
      require_close(what, out[row * stride + column], p.expected[at] + more,
                    1e-6 * (4 + p.n_groups()) * (p.magnitude[at] + std::fabs(more)));
    }
    for (size_t column = p.n; column < stride; ++column) require(out[row * stride + column] == 99.0f, what + ": overrun");
  }
}

void check_gates(const std::string& what, const Product& p, const std::vector<float>& out, bool is_silu, int n) {
  for (int row = 0; row < p.m; ++row)
    for (int column = 0; column < n / 2; ++column) {
      const size_t at = static_cast<size_t>(row) * p.n_columns() + column / kStrip * 2 * kStrip + column % kStrip;
      const double gate = p.expected[at], up = p.expected[at + kStrip], unit = 1e-6 * (4 + p.n_groups());
      const double u = is_silu ? gate : 1.5957691216057308 * (gate + 0.044715 * gate * gate * gate);
      const double gate_room = unit * p.magnitude[at], up_room = unit * p.magnitude[at + kStrip];
      const double size = std::fabs(gate) + 1, up_size = std::fabs(up) + 1;
      require_close(what, out[static_cast<size_t>(row) * (n / 2) + column], gate / (1 + std::exp(-u)) * up,
                    2 * (gate_room * up_size + up_room * size + 4e-6 * size * up_size));
    }
}

// Law 15: bits do not depend on what else is in the batch, nor on where a row lies in it.
void check_company(const Kernels& level, Random& random, const Product& p, const std::vector<float>& together,
                   Epilogue epilogue, const float* bias, int n) {
  const size_t stride = together.size() / p.m;
  for (int row = 0; row < p.m;) {
    const int n_rows = random.one_of({1, 1, 2, 5}), end = row + n_rows < p.m ? row + n_rows : p.m;
    const std::vector<float> here(together.begin() + row * stride, together.begin() + end * stride);
    require_same("gemm: rows in smaller company", multiply(level, p, row, end - row, epilogue, bias, n), here);
    row = end;
  }
}

void check_poison(const Kernels& level, Product p, const std::vector<float>& clean) {
  const int victim = p.m / 2;
  const float nan = std::nanf("");
  p.scale[victim * p.n_groups()] = p.sum[victim * p.n_groups()] = p.f32[static_cast<size_t>(victim) * p.k] = nan;
  p.bf16[static_cast<size_t>(victim) * p.k] = bf16_from_float(nan);
  std::vector<float> poisoned = multiply(level, p, 0, p.m, Epilogue::Store, nullptr, p.n);
  const size_t stride = p.n + 3;
  for (int column = 0; column < p.n; ++column) {
    require(std::isnan(poisoned[victim * stride + column]), "gemm: poison is lost");
    poisoned[victim * stride + column] = clean[victim * stride + column];
  }
  require_same("gemm: beside a poisoned row", poisoned, clean);
}

void check_product(const Kernels& level, const Kernels& portable, Random& random, const Product& p) {
  const std::vector<float> bias = random.normals(p.n);
  const std::vector<float> stored = multiply(level, p, 0, p.m, Epilogue::Store, nullptr, p.n);
  check_sums("gemm", p, stored, 0, nullptr);
  if (p.values == Values::Exact && p.kind != Kind::Int8Fine)
    require_equal("gemm of small whole numbers", stored, multiply(portable, p, 0, p.m, Epilogue::Store, nullptr, p.n));
  check_company(level, random, p, stored, Epilogue::Store, nullptr, p.n);
  check_poison(level, p, stored);
  const std::vector<float> added = multiply(level, p, 0, p.m, Epilogue::Add, bias.data(), p.n);
  check_sums("gemm with bias and residual", p, added, 99, bias.data());
  check_company(level, random, p, added, Epilogue::Add, bias.data(), p.n);
  const int n_gated = p.n / 32 * 32;
  for (const bool is_silu : {false, true}) {
    const Epilogue epilogue = is_silu ? Epilogue::GatedSilu : Epilogue::GatedGelu;
    const std::vector<float> gated = multiply(level, p, 0, p.m, epilogue, nullptr, n_gated);
    check_gates("gated gemm", p, gated, is_silu, n_gated);
    check_company(level, random, p, gated, epilogue, nullptr, n_gated);
  }
}

}  // namespace

void check_gemm(const Kernels& level, const Kernels& portable) {
  Random random(3);
  for (const Kind kind : {Kind::Int4, Kind::Int8, Kind::Int8Fine, Kind::Bf16, Kind::F32})
    for (const Values values : {Values::Exact, Values::Random, Values::Extreme})
      for (int i = 0; i < 8; ++i) check_product(level, portable, random, random_product(random, kind, values));
  require(level.multiply_registers(1000) == portable.multiply_registers(1000), "multiply_registers");
}

}  // namespace tribar::check
