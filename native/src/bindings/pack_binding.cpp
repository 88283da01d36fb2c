// Packing for Python: the tests' view, and the loader's.
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <stdexcept>
#include <string>
#include <tuple>

#include "../pack.h"
#include "bindings.h"

namespace nb = nanobind;

namespace tribar {
namespace {

using Bytes = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using WritableBytes = nb::ndarray<uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Floats = nb::ndarray<float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Part = std::tuple<int, int, int, Bytes>;  // ggml type, n, k, stored bytes

void require(bool condition, const char* message) {
  if (!condition) throw std::invalid_argument(message);
}

std::vector<Stored> stored_of(const std::vector<Part>& parts) {
  require(!parts.empty(), "a matrix has at least one part");
  std::vector<Stored> stored;
  for (const auto& [type, n, k, bytes] : parts) {
    const StoredLayout layout = layout_of(static_cast<StoredType>(type));
    require(layout.n_elements > 0, "not a stored type that can be packed");
    require(n > 0 && k > 0 && k % layout.n_elements == 0, "n and k are positive and k is a whole number of blocks");
    require(k == std::get<2>(parts[0]), "parts of one matrix have the same k");
    const Stored part{static_cast<StoredType>(type), n, k, bytes.data()};
    require(bytes.size() == n * part.row_bytes(), "the stored bytes do not have the size of [n, k]");
    stored.push_back(part);
  }
  return stored;
}

PackSpec spec_of(const std::vector<Part>& parts, int type, bool is_gated) {
  require(type >= 0 && type <= 3, "not a weight type");
  PackSpec spec{static_cast<WeightType>(type), stored_of(parts), is_gated};
  require(!is_gated || (spec.parts.size() == 2 && spec.parts[0].n == spec.parts[1].n), "gate and up have the same n");
  return spec;
}

std::tuple<int, int, int> pack(const std::vector<Part>& parts, int type, bool is_gated, int strip_begin, int strip_end,
                               WritableBytes out) {
  const PackSpec spec = spec_of(parts, type, is_gated);
  require(out.size() == spec.n_bytes(), "out does not have the size of the packed matrix");
  require(0 <= strip_begin && strip_begin <= strip_end && strip_end <= spec.matrix(nullptr).n_strips(), "no such strips");
  nb::gil_scoped_release released;
  const PackFault fault = pack_strips(spec, strip_begin, strip_end, out.data());
  return {fault.part, fault.row, fault.input};
}

std::tuple<int, int, size_t> packed_shape(const std::vector<Part>& parts, int type, bool is_gated) {
  const PackSpec spec = spec_of(parts, type, is_gated);
  return {spec.n(), spec.k(), spec.n_bytes()};
}

std::vector<std::tuple<int, int>> plan(const std::vector<Part>& parts, int rule, bool is_gated) {
  require(rule >= 0 && rule <= 4, "not a weights rule");
  const std::vector<Stored> stored = stored_of(parts);
  require(!is_gated || stored.size() == 2, "a gated matrix has two parts");
  std::vector<std::tuple<int, int>> planned;
  for (const PackSpec& spec : plan_matrices(stored, static_cast<WeightsRule>(rule), is_gated))
    planned.emplace_back(static_cast<int>(spec.type), static_cast<int>(spec.parts.size()));
  return planned;
}

void column(Bytes data, int type, int n, int k, int index, Floats out) {
  require(type >= 0 && type <= 3, "not a weight type");
  const Matrix matrix{static_cast<WeightType>(type), n, k, data.data()};
  require(k % kGroup == 0 && data.size() == matrix.n_strips() * matrix.strip_bytes(), "data is not a matrix [n, k]");
  require(0 <= index && index < n && out.size() <= static_cast<size_t>(k), "no such column");
  read_column(matrix, index, static_cast<int>(out.size()), out.data());
}

}  // namespace

void bind_pack(nb::module_& packing) {
  packing.def("pack_strips", &pack, nb::arg("parts"), nb::arg("weight_type"), nb::arg("is_gated"), nb::arg("strip_begin"),
        nb::arg("strip_end"), nb::arg("out"),
        "Packs strips of a matrix into out; (part, row, input) of the first group that does not fit fp16, part -1 for none.");
  packing.def("packed_shape", &packed_shape, nb::arg("parts"), nb::arg("weight_type"), nb::arg("is_gated"),
        "(columns, padded inputs, bytes) of the packed matrix.");
  packing.def("plan_matrices", &plan, nb::arg("parts"), nb::arg("rule"), nb::arg("is_gated"),
        "(weight type, number of parts) of each matrix that parts with one input are packed into.");
  packing.def("read_column", &column, nb::arg("data"), nb::arg("weight_type"), nb::arg("n"), nb::arg("k"), nb::arg("index"),
        nb::arg("out"), "Inputs [0, len(out)) of one column of a packed matrix, in fp32.");
}

}  // namespace tribar
