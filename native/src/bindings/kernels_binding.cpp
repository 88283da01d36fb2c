// Every kernel of every CPU level, callable with numpy arrays. Sizes are checked here, because the kernels do not.
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <stdexcept>

#include "../kernels.h"
#include "bindings.h"

namespace nb = nanobind;

namespace tribar {
namespace {

template <class T, int N>
using Array = nb::ndarray<T, nb::ndim<N>, nb::c_contig, nb::device::cpu>;
template <class T, int N>
using MaybeArray = std::optional<Array<T, N>>;

void require(bool is_so, const char* what) {
  if (!is_so) throw std::invalid_argument(what);
}

auto* data_or_null(const auto& array) { return array ? array->data() : nullptr; }

bool has_shape(const auto& array, size_t rows, size_t columns) {
  return array && array->shape(0) == rows && array->shape(1) == columns;
}

int index_of(const std::string& name, std::initializer_list<const char*> names) {
  int index = 0;
  for (const char* known : names) {
    if (name == known) return index;
    ++index;
  }
  throw std::invalid_argument("unknown name " + name);
}

void gemm(const std::string& level, const std::string& type, int n, const Array<const uint8_t, 1>& weights,
          const Array<float, 2>& out, const MaybeArray<const int8_t, 2>& q, const MaybeArray<const int8_t, 2>& q_low,
          const MaybeArray<const float, 2>& scale, const MaybeArray<const float, 2>& sum,
          const MaybeArray<const uint16_t, 2>& bf16, const MaybeArray<const float, 2>& f32, const MaybeArray<const float, 1>& bias, const std::string& epilogue,
          int strip_begin, int strip_end) {
  Matrix w;
  w.type = static_cast<WeightType>(index_of(type, {"int4", "int8", "bf16", "f32"}));
  const bool is_integer = w.type == WeightType::Int4 || w.type == WeightType::Int8;
  const size_t m = out.shape(0);
  require(is_integer ? q && scale && sum : w.type == WeightType::Bf16 ? bf16.has_value() : f32.has_value(),
          "activations of the type the weights need");
  const size_t k = is_integer ? q->shape(1) : w.type == WeightType::Bf16 ? bf16->shape(1) : f32->shape(1);
  require(k > 0 && k % kGroup == 0, "k is a multiple of 32");
  if (is_integer)
    require(has_shape(q, m, k) && has_shape(scale, m, k / kGroup) && has_shape(sum, m, k / kGroup), "shapes of q");
  else
    require(has_shape(bf16, m, k) || has_shape(f32, m, k), "shape of the activations");
  require(!q_low || (w.type == WeightType::Int8 && has_shape(q_low, m, k)), "q_low: of int8 weights, shaped as q");
  w.n = n;
  w.k = static_cast<int>(k);
  w.data = weights.data();
  require(weights.shape(0) == w.strip_bytes() * w.n_strips(), "bytes of the weights");
  Activations a{static_cast<int>(m), w.k};
  a.q = data_or_null(q);
  a.q_low = data_or_null(q_low);
  a.scale = data_or_null(scale);
  a.sum = data_or_null(sum);
  a.bf16 = data_or_null(bf16);
  a.f32 = data_or_null(f32);
  Output output{out.data(), static_cast<int>(out.shape(1))};
  output.bias = data_or_null(bias);
  output.epilogue = static_cast<Epilogue>(index_of(epilogue, {"store", "add", "gated_silu", "gated_gelu"}));
  const bool is_gated = output.epilogue == Epilogue::GatedSilu || output.epilogue == Epilogue::GatedGelu;
  require(!is_gated || (n % (2 * kStrip) == 0 && strip_begin % 2 == 0 && strip_end % 2 == 0), "pairs of strips");
  require(output.stride >= (is_gated ? n / 2 : n) && (!bias || static_cast<int>(bias->shape(0)) == n), "columns");
  require(strip_begin >= 0 && strip_end <= w.n_strips(), "strips");
  kernels_for(level).gemm(w, a, strip_begin, strip_end, output);
}

void rms_norm(const std::string& level, const Array<const float, 1>& x, const MaybeArray<const float, 1>& weight,
              float eps, const Array<float, 1>& out) {
  require(out.shape(0) == x.shape(0) && (!weight || weight->shape(0) == x.shape(0)), "equal lengths");
  kernels_for(level).rms_norm(x.data(), data_or_null(weight), static_cast<int>(x.shape(0)), eps, out.data());
}

void quantise(const std::string& level, const Array<const float, 1>& x, const Array<int8_t, 1>& q,
              const MaybeArray<int8_t, 1>& q_low, const Array<float, 1>& scale, const Array<float, 1>& sum) {
  const size_t padded = q.shape(0);
  require(padded % kGroup == 0 && padded >= x.shape(0), "q is padded to a multiple of 32");
  require(scale.shape(0) == padded / kGroup && sum.shape(0) == padded / kGroup, "one scale and sum per group");
  require(!q_low || q_low->shape(0) == padded, "q_low is as long as q");
  kernels_for(level).quantise(x.data(), static_cast<int>(x.shape(0)), static_cast<int>(padded), q.data(),
                              data_or_null(q_low), scale.data(), sum.data());
}

void to_bf16(const std::string& level, const Array<const float, 1>& x, const Array<uint16_t, 1>& out) {
  require(out.shape(0) >= x.shape(0), "out is at least as long as x");
  kernels_for(level).to_bf16(x.data(), static_cast<int>(x.shape(0)), static_cast<int>(out.shape(0)), out.data());
}

void rope(const std::string& level, const Array<float, 2>& x, const Array<const float, 2>& cos_sin, bool interleaved) {
  require(2 * cos_sin.shape(0) <= x.shape(1) && cos_sin.shape(1) == 2, "at most head_dim / 2 pairs (cos, sin)");
  kernels_for(level).rope(x.data(), static_cast<int>(x.shape(0)), static_cast<int>(x.shape(1)),
                          static_cast<int>(2 * cos_sin.shape(0)), cos_sin.data(), interleaved);
}

int argmax(const std::string& level, const Array<const float, 1>& x) {
  return kernels_for(level).argmax(x.data(), static_cast<int>(x.shape(0)));
}

// KV memory in an array of the caller's.
struct KvMemory {
  Array<uint8_t, 1> bytes;
  KvCache cache;

  KvMemory(const std::string& type, int n_layers, int n_blocks, int n_kv_heads, int head_dim, Array<uint8_t, 1> array)
      : bytes(std::move(array)) {
    require(head_dim > 0 && head_dim % 16 == 0 && head_dim <= 256, "head_dim is a multiple of 16, at most 256");
    cache.type = static_cast<KvType>(index_of(type, {"bf16", "f32", "int8"}));
    cache.n_layers = n_layers;
    cache.n_blocks = n_blocks;
    cache.n_kv_heads = n_kv_heads;
    cache.head_dim = head_dim;
    cache.data = bytes.data();
    require(bytes.shape(0) == n_layers * n_blocks * cache.block_bytes(), "bytes of the KV memory");
  }
};

void kv_write(const std::string& level, const KvMemory& kv, int layer, int block, int slot,
              const Array<const float, 2>& k, const Array<const float, 2>& v) {
  const KvCache& c = kv.cache;
  require(layer >= 0 && layer < c.n_layers && block >= 0 && block < c.n_blocks && slot >= 0 && slot < kBlock, "place");
  for (const auto* x : {&k, &v})
    require(static_cast<int>(x->shape(0)) == c.n_kv_heads && static_cast<int>(x->shape(1)) == c.head_dim, "shape");
  kernels_for(level).kv_write(c, layer, block, slot, k.data(), v.data());
}

using Queries = nb::ndarray<const float, nb::ndim<3>, nb::device::cpu>;  // rows may be strided

void attend_span(const std::string& level, const KvMemory& kv, int layer, int kv_head,
                 const Array<const int32_t, 1>& block_table, const Queries& q, int position, int window, float scale,
                 float softcap, int span, const Array<float, 2>& max, const Array<float, 2>& sum,
                 const Array<float, 3>& acc) {
  AttentionTask task;
  task.layer = layer;
  task.kv_head = kv_head;
  task.block_table = block_table.data();
  task.n_queries = static_cast<int>(q.shape(0));
  task.n_heads = static_cast<int>(q.shape(1));
  task.position = position;
  task.window = window;
  task.q = q.data();
  task.q_stride = static_cast<int>(q.stride(0));
  task.scale = scale;
  task.softcap = softcap;
  require(task.n_queries <= kQueryTile && static_cast<int>(q.shape(2)) == kv.cache.head_dim, "shape of q");
  require(layer >= 0 && layer < kv.cache.n_layers && kv_head >= 0 && kv_head < kv.cache.n_kv_heads, "layer and head");
  require(position >= 0 && (position + task.n_queries + kBlock - 1) / kBlock <= static_cast<int>(block_table.shape(0)),
          "a block for every position");
  require(max.size() == q.shape(0) * q.shape(1) && sum.size() == max.size() && acc.size() == q.size(), "partials");
  kernels_for(level).attend_span(kv.cache, task, span, max.data(), sum.data(), acc.data());
}

void merge_spans(const std::string& level, const Array<const float, 3>& max, const Array<const float, 3>& sum,
                 const Array<const float, 4>& acc, const Array<float, 3>& out) {
  AttentionTask task;
  task.n_queries = static_cast<int>(max.shape(1));
  task.n_heads = static_cast<int>(max.shape(2));
  task.out = out.data();
  task.out_stride = static_cast<int>(out.shape(1) * out.shape(2));
  require(sum.size() == max.size() && acc.size() == max.size() * out.shape(2), "partials");
  require(out.shape(0) == max.shape(1) && out.shape(1) == max.shape(2), "shape of out");
  kernels_for(level).merge_spans(task, static_cast<int>(out.shape(2)), static_cast<int>(max.shape(0)), max.data(),
                                 sum.data(), acc.data());
}

}  // namespace

void bind_kernels(nb::module_& m) {
  m.attr("SPAN") = kSpan;
  m.attr("QUERY_TILE") = kQueryTile;
  m.def("levels", &cpu_levels);
  m.def("level_for", [](const std::string& wanted) { return std::string(kernels_for(wanted).level); }, nb::arg("wanted"));
  m.def("gemm", &gemm, nb::arg("level"), nb::arg("kind"), nb::arg("n"), nb::arg("weights"), nb::arg("out"), nb::kw_only(),
        nb::arg("q") = nb::none(), nb::arg("q_low") = nb::none(), nb::arg("scale") = nb::none(),
        nb::arg("sums") = nb::none(), nb::arg("bf16") = nb::none(), nb::arg("f32") = nb::none(), nb::arg("bias") = nb::none(),
        nb::arg("epilogue") = "store", nb::arg("strip_begin"), nb::arg("strip_end"));
  m.def("multiply_registers",
        [](const std::string& level, int64_t n) {
          const Kernels& kernels = kernels_for(level);
          nb::gil_scoped_release released;
          return kernels.multiply_registers(n);
        },
        nb::arg("level"), nb::arg("n"));
  m.def("rms_norm", &rms_norm, nb::arg("level"), nb::arg("x"), nb::arg("weight").none(), nb::arg("eps"), nb::arg("out"));
  m.def("quantise", &quantise, nb::arg("level"), nb::arg("x"), nb::arg("q"), nb::arg("q_low").none(),
        nb::arg("scale"), nb::arg("sums"));
  m.def("to_bf16", &to_bf16, nb::arg("level"), nb::arg("x"), nb::arg("out"));
  m.def("rope", &rope, nb::arg("level"), nb::arg("x"), nb::arg("cos_sin"), nb::arg("interleaved"));
  m.def("argmax", &argmax, nb::arg("level"), nb::arg("x"));
  nb::class_<KvMemory>(m, "KvMemory")
      .def(nb::init<const std::string&, int, int, int, int, Array<uint8_t, 1>>(), nb::arg("kind"), nb::arg("n_layers"),
           nb::arg("n_blocks"), nb::arg("n_kv_heads"), nb::arg("head_dim"), nb::arg("memory"));
  m.def("kv_write", &kv_write, nb::arg("level"), nb::arg("kv"), nb::arg("layer"), nb::arg("block"), nb::arg("slot"),
        nb::arg("k"), nb::arg("v"));
  m.def("attend_span", &attend_span, nb::arg("level"), nb::arg("kv"), nb::arg("layer"), nb::arg("kv_head"),
        nb::arg("block_table"), nb::arg("q"), nb::arg("position"), nb::arg("window"), nb::arg("scale"),
        nb::arg("softcap"), nb::arg("span"), nb::arg("maxima"), nb::arg("sums"), nb::arg("acc"));
  m.def("merge_spans", &merge_spans, nb::arg("level"), nb::arg("maxima"), nb::arg("sums"), nb::arg("acc"), nb::arg("out"));
}

}  // namespace tribar
