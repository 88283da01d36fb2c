#include "pack.h"

#include <algorithm>

#include "floats.h"

namespace tribar {
namespace {

// The row of a part that a column shows; part -1 where the column is padding.
struct Source {
  int part = -1, row = 0;
};

Source source_of(const PackSpec& spec, int column) {
  if (spec.is_gated) {
    const int strip = column / kStrip, row = strip / 2 * kStrip + column % kStrip;
    return row < spec.parts[0].n ? Source{strip % 2, row} : Source{};
  }
  for (int part = 0; part < static_cast<int>(spec.parts.size()); ++part) {
    if (column < spec.parts[part].n) return {part, column};
    column -= spec.parts[part].n;
  }
  return {};
}

// A group as it will stand in the matrix: constants in fp16.
struct PackedGroup {
  uint8_t q[kGroup] = {};
  uint16_t d = 0, m = 0;

  bool fits() const { return (d & 0x7c00) != 0x7c00 && (m & 0x7c00) != 0x7c00; }
};

constexpr uint16_t kNotANumber = 0x7e00;

// Nearest integer, ties to even, for |x| < 2^22: adding 1.5 * 2^23 leaves no bits below 1.
float rounded(float x) { return (x + 12582912.0f) - 12582912.0f; }

// An integer that orders as the float does, and back: integer minima need no care for NaN, so the compiler has lanes for
// them. Finite floats lie strictly between the two infinities.
constexpr int32_t kInfinity = 0x7f800000;
int32_t ordered(uint32_t bits) { return static_cast<int32_t>(bits ^ (bits >> 31 ? 0x7fffffffu : 0u)); }
float float_of_order(int32_t order) { return float_of(static_cast<uint32_t>(ordered(static_cast<uint32_t>(order)))); }

// The first n of 32 values; the others become what is nearest to zero in their range.
PackedGroup requantise(float* values, int n, int n_levels) {
  PackedGroup group;
  for (int i = n; i < kGroup; ++i) values[i] = values[0];
  int32_t lowest = ordered(bits_of(values[0])), highest = lowest;
  for (int i = 0; i < kGroup; ++i) {
    const int32_t order = ordered(bits_of(values[i]));
    lowest = std::min(lowest, order);
    highest = std::max(highest, order);
  }
  if (lowest <= ~kInfinity || highest >= kInfinity) {
    group.d = kNotANumber;
    return group;
  }
  const float low = float_of_order(lowest), high = float_of_order(highest), last = static_cast<float>(n_levels - 1);
  group.m = fp16_below(low);
  const float m = fp16_to_float(group.m);
  group.d = fp16_above((high - m) / last);
  const float d = fp16_to_float(group.d);
  if (d == 0) return group;
  for (int i = n; i < kGroup; ++i) values[i] = std::clamp(0.0f, low, high);
  for (int i = 0; i < kGroup; ++i)  // each within [0, last], since m is not above low and d not below the exact step
    group.q[i] = static_cast<uint8_t>(static_cast<int>(rounded((values[i] - m) / d)));
  return group;
}

PackedGroup quantised_group(const Stored& stored, int row, int group, int n_levels) {
  const int stored_levels = layout_of(stored.type).n_levels;
  if (stored_levels == 0 || stored_levels > n_levels) {
    float values[kGroup];
    read_floats(stored, row, group, values);
    return requantise(values, std::min(kGroup, stored.k - group * kGroup), n_levels);
  }
  Codes codes;
  read_codes(stored.type, stored.row(row), group, codes);
  PackedGroup packed;
  std::memcpy(packed.q, codes.q, kGroup);
  packed.d = fp16_from_float(codes.d);
  packed.m = fp16_from_float(codes.m);
  return packed;
}

void store_int4(const PackedGroup& group, int column, uint8_t* out) {
  for (int i = 0; i < 4; ++i) {
    uint32_t low, high;  // four codes each, none above 15
    std::memcpy(&low, group.q + 8 * i, 4);
    std::memcpy(&high, group.q + 8 * i + 4, 4);
    const uint32_t pairs = low | high << 4;
    std::memcpy(out + 64 * i + 4 * column, &pairs, 4);
  }
}

void store_int8(const PackedGroup& group, int column, uint8_t* out) {
  for (int i = 0; i < 8; ++i) std::memcpy(out + 64 * i + 4 * column, group.q + 4 * i, 4);
}

void store_bf16(const float* values, int column, uint8_t* out) {
  for (int i = 0; i < 16; ++i) {
    const uint16_t pair[2] = {bf16_from_float(values[2 * i]), bf16_from_float(values[2 * i + 1])};
    std::memcpy(out + 64 * i + 4 * column, pair, 4);
  }
}

void store_f32(const float* values, int column, uint8_t* out) {
  for (int i = 0; i < kGroup; ++i) std::memcpy(out + 64 * i + 4 * column, values + i, 4);
}

// One column's share of a group. Returns whether its constants fit.
bool pack_column(WeightType type, const Stored& stored, int row, int group, int column, uint8_t* out) {
  if (type == WeightType::Bf16 || type == WeightType::F32) {
    float values[kGroup];
    read_floats(stored, row, group, values);
    type == WeightType::Bf16 ? store_bf16(values, column, out) : store_f32(values, column, out);
    return true;
  }
  const PackedGroup packed = quantised_group(stored, row, group, type == WeightType::Int4 ? 16 : 256);
  type == WeightType::Int4 ? store_int4(packed, column, out) : store_int8(packed, column, out);
  uint8_t* constants = out + group_bytes(type) - 4 * kStrip;
  std::memcpy(constants + 2 * column, &packed.d, 2);
  std::memcpy(constants + 2 * kStrip + 2 * column, &packed.m, 2);
  return packed.fits();
}

void zero_column(WeightType type, int column, uint8_t* out) {
  const size_t size = group_bytes(type);
  const size_t n_codes = type == WeightType::Int4 || type == WeightType::Int8 ? size - 4 * kStrip : size;
  for (size_t at = 4 * column; at < n_codes; at += 64) std::memset(out + at, 0, 4);
  if (n_codes == size) return;
  std::memset(out + n_codes + 2 * column, 0, 2);
  std::memset(out + n_codes + 2 * kStrip + 2 * column, 0, 2);
}

}  // namespace

WeightType packed_type(StoredType stored, WeightsRule rule) {
  if (rule != WeightsRule::Auto) return static_cast<WeightType>(static_cast<int>(rule) - 1);
  switch (stored) {
    case StoredType::F32: return WeightType::F32;
    case StoredType::F16:
    case StoredType::BF16: return WeightType::Bf16;
    case StoredType::Q4_0:
    case StoredType::Q4_1:
    case StoredType::Q4_K: return WeightType::Int4;
    default: return WeightType::Int8;
  }
}

int PackSpec::n() const {
  if (is_gated) return 2 * ((parts[0].n + kStrip - 1) / kStrip * kStrip);
  int total = 0;
  for (const Stored& part : parts) total += part.n;
  return total;
}

int PackSpec::k() const { return (parts[0].k + kGroup - 1) / kGroup * kGroup; }

size_t PackSpec::n_bytes() const {
  const Matrix shape = matrix(nullptr);
  return shape.n_strips() * shape.strip_bytes();
}

std::vector<PackSpec> plan_matrices(const std::vector<Stored>& parts, WeightsRule rule, bool is_gated) {
  if (is_gated) {
    // WeightType is ordered by width.
    return {{std::max(packed_type(parts[0].type, rule), packed_type(parts[1].type, rule)), parts, true}};
  }
  std::vector<PackSpec> specs;
  for (const Stored& part : parts) {
    const WeightType type = packed_type(part.type, rule);
    if (specs.empty() || specs.back().type != type) specs.push_back({type, {}, false});
    specs.back().parts.push_back(part);
  }
  return specs;
}

PackFault pack_strips(const PackSpec& spec, int strip_begin, int strip_end, uint8_t* data) {
  const Matrix shape = spec.matrix(data);
  PackFault fault;
  for (int strip = strip_begin; strip < strip_end; ++strip) {
    Source sources[kStrip];
    for (int c = 0; c < kStrip; ++c) sources[c] = source_of(spec, strip * kStrip + c);
    uint8_t* out = data + strip * shape.strip_bytes();
    for (int group = 0; group < shape.k / kGroup; ++group, out += group_bytes(spec.type))
      for (int c = 0; c < kStrip; ++c) {
        const Source source = sources[c];
        if (source.part < 0) {
          zero_column(spec.type, c, out);
        } else if (!pack_column(spec.type, spec.parts[source.part], source.row, group, c, out) && !fault) {
          fault = {source.part, source.row, group * kGroup};
        }
      }
  }
  return fault;
}

void read_column(const Matrix& matrix, int column, int k, float* out) {
  const int c = column % kStrip;
  const uint8_t* data = matrix.strip(column / kStrip);
  const size_t size = group_bytes(matrix.type);
  uint16_t d = 0, m = 0, half;
  for (int at = 0; at < k; ++at) {
    const uint8_t* group = data + at / kGroup * size;
    const int i = at % kGroup;
    if (i == 0 && matrix.type <= WeightType::Int8) {
      std::memcpy(&d, group + size - 4 * kStrip + 2 * c, 2);
      std::memcpy(&m, group + size - 2 * kStrip + 2 * c, 2);
    }
    if (matrix.type == WeightType::Int4) {
      const uint8_t pair = group[64 * (i / 8) + 4 * c + i % 4];
      out[at] = fp16_to_float(d) * static_cast<float>(i % 8 < 4 ? pair & 15 : pair >> 4) + fp16_to_float(m);
    } else if (matrix.type == WeightType::Int8) {
      out[at] = fp16_to_float(d) * static_cast<float>(group[64 * (i / 4) + 4 * c + i % 4]) + fp16_to_float(m);
    } else if (matrix.type == WeightType::Bf16) {
      std::memcpy(&half, group + 64 * (i / 2) + 4 * c + 2 * (i % 2), 2);
      out[at] = bf16_to_float(half);
    } else {
      std::memcpy(out + at, group + 64 * i + 4 * c, 4);
    }
  }
}

}  // namespace tribar
